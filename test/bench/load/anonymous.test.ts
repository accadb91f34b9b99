import { expect, test } from 'vitest';
import { anonymous } from '../../../bench/load/anonymous.ts';
import { recording } from './recordings.ts';

test('replaces names of the machine everywhere with text of equal length', () => {
  const content = Buffer.from('{"binary":"/home/someone/.cache/runc","host":"machine-7"}');
  const [call] = recording.calls;
  const found = anonymous(
    {
      ...recording,
      calls: [{ ...call!, request: content, responses: [content], message: 'no /home/someone/file' }],
      answers: [{ path: '/x', request: content, response: content }],
    },
    ['/home/someone', '/home/someone/.cache', 'machine-7'],
  );
  const replaced = '{"binary":"/xxxxxxxxxxxxxxxxxxx/runc","host":"xxxxxxxxx"}';
  const texts = [...found.calls, ...found.answers].map(({ request }) => request.toString());
  expect(texts).toEqual([replaced, replaced]);
  expect(found.calls[0]?.responses.map(String)).toEqual([replaced]);
  expect(found.answers[0]?.response.toString()).toBe(replaced);
  expect(found.calls[0]?.message).toBe('no /xxxxxxxxxxxx/file');
  expect(replaced.length).toBe(content.length);
});

test('rejects a name that is too short to be replaced safely', () => {
  expect(() => anonymous(recording, ['/home/someone', 'vm'])).toThrow('"vm" is too short');
});
