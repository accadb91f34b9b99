import { expect, test } from 'vitest';
import * as z from 'zod/mini';
import { parsedResponse } from '../../../src/kubernetes/client/api.ts';

const schema = z.object({ kind: z.literal('Node') });

test('a response is parsed by its schema', () => {
  expect(parsedResponse(schema, '{"kind":"Node"}', 'a node')).toEqual({ kind: 'Node' });
});

test.each(['<html>secret</html>', '{"kind":"secret"}'])(
  'the error about the invalid response %s does not quote it',
  (text) => {
    expect(() => parsedResponse(schema, text, 'a node')).toThrow(/^the response is not a node$/);
  },
);
