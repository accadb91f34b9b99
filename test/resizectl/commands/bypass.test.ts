import { once } from 'node:events';
import { afterEach, expect, test, vi } from 'vitest';
import { drain } from '../../../src/bypass/drain.ts';
import { bypassState } from '../../../src/install/node/bypass.ts';
import { bypassDrain } from '../../../src/resizectl/commands/bypass.ts';

vi.mock(import('../../../src/bypass/drain.ts'), () => ({ drain: vi.fn() }));
vi.mock(import('../../../src/install/node/bypass.ts'), { spy: true });

const SIGNALS = ['SIGINT', 'SIGTERM', 'SIGHUP'] as const;
const before = new Map(SIGNALS.map((signal) => [signal, process.listeners(signal)]));
afterEach(() => {
  vi.restoreAllMocks();
  for (const signal of SIGNALS)
    for (const listener of process.listeners(signal))
      if (before.get(signal)?.includes(listener) !== true) process.off(signal, listener);
});

test.each([
  ['SIGINT', 'interrupted: the bypass still serves clients\n', 3],
  ['SIGHUP', 'interrupted: the bypass still serves clients\n', 3],
  ['SIGTERM', 'calls are cut off\n', 1],
] as const)(
  'bypass drain ends by itself after %s, so that the bypass does not stay stopped',
  async (name, text, exit) => {
    vi.spyOn(process, 'geteuid').mockReturnValue(0);
    const active = { isInstalled: true, isUsed: true, isActive: true, pid: 4711, since: '' };
    vi.mocked(bypassState).mockResolvedValue(active);
    vi.mocked(drain).mockImplementation(async (_, { signal, interrupt }) => {
      const ended = [signal, interrupt].map((one) => once(one!, 'abort'));
      process.kill(process.pid, name);
      await Promise.race(ended);
      return interrupt!.aborted ? 'interrupted' : 'timed out';
    });
    const lines: string[] = [];
    const print = (line: string): void => void lines.push(line);
    expect(await bypassDrain({ print, say: print }, [])).toBe(exit);
    expect(lines).toEqual([text]);
  },
);

test('bypass drain moves the clients of the process and the socket that the entry point of the image names', async () => {
  vi.mocked(drain).mockImplementation(async ({ pid, listen }, { isReplaced, say }) => {
    say(`${pid} ${listen} ${await isReplaced()}`);
    return 'drained';
  });
  const lines: string[] = [];
  const print = (line: string): void => void lines.push(line);
  expect(await bypassDrain({ print, say: print }, ['4711', '/run/cri.sock'])).toBe(0);
  expect(lines).toEqual(['4711 /run/cri.sock true\n', 'all clients use the shim\n']);
  await expect(bypassDrain({ print, say: print }, ['all'])).rejects.toThrow(
    'invalid process id "all": expected a number',
  );
});
