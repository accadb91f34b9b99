import { expect, test } from 'vitest';
import { createCounters } from '../../../src/core/observe/counters.ts';
import { unaryEnded } from '../../../src/server/handlers/interceptors.ts';

test.each([
  ['UpdateContainerResources', 0, 'info'],
  ['RuntimeConfig', 0, 'debug'],
  ['RuntimeConfig', 12, 'info'],
])('a handled %s with code %d is counted, and logged as %s', (method, code, level) => {
  const lines: string[] = [];
  const write = (of: string) => (): void => void lines.push(of);
  const log = { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
  const counters = createCounters();
  const path = `/runtime.v1.RuntimeService/${method}`;
  unaryEnded(path, { log, counters })({ trace: { fields: {}, backendMs: 1 }, code, elapsedMs: 2 });
  expect(lines).toEqual([level]);
  expect(counters.snapshot().interceptedCalls).toMatchObject([{ method: path, count: 1, milliseconds: 2 }]);
});
