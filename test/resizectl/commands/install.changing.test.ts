import { afterEach, expect, test, vi } from 'vitest';
import { locked } from '../../../src/resizectl/commands/install.ts';
import { reportOf } from '../../../src/resizectl/output/failure.ts';

afterEach(() => vi.restoreAllMocks());

test.each([
  [4711, ' (pid 4711)'],
  [undefined, ''],
])('a second installation names the process of the first one, %s, and exits with code 7', async (pid, named) => {
  vi.spyOn(process, 'geteuid').mockReturnValue(0);
  const busy: unknown = await locked(false, () => Promise.resolve({ kind: 'locked', pid })).catch(
    (error: unknown) => error,
  );
  expect(reportOf(busy, '')).toEqual({
    lines: [
      `nothing was changed: another installation runs${named}; what to do: wait until it has ended, and try again`,
    ],
    exit: 7,
  });
});

test('a dry run does not take the installation lock, and neither does a user without root rights', async () => {
  const take = vi.fn(() => Promise.resolve({ kind: 'locked', pid: 1 } as const));
  const geteuid = vi.spyOn(process, 'geteuid').mockReturnValue(0);
  await (await locked(true, take))();
  geteuid.mockReturnValue(1000);
  await (await locked(false, take))();
  expect(take).not.toHaveBeenCalled();
});
