import { expect, test } from 'vitest';
import { type Finding, worstOf } from '../../../src/install/node/finding.ts';
import { doctorText } from '../../../src/resizectl/commands/doctor.ts';

test('doctor reports the worst result as its own, and lists remedies at the end', () => {
  const finding = (check: string, result: Finding['result'], remedy = ''): Finding => ({
    check,
    result,
    found: 'x',
    remedy,
  });
  expect(worstOf([])).toBe('ok');
  expect(worstOf([finding('a', 'ok'), finding('b', 'warning', 'c')])).toBe('warning');
  expect(worstOf([finding('a', 'failed', 'd'), finding('b', 'warning', 'c')])).toBe('failed');
  expect(doctorText([finding('a', 'ok'), finding('b', 'failed', 'do this')])).toBe(
    'CHECK   RESULT   FOUND\na       ok       x\nb       failed   x\n\nWhat to do:\n  b:   do this\n',
  );
  expect(doctorText([finding('a', 'ok')])).not.toContain('What to do');
});
