import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { endText, unitHistory } from '../../../src/install/kubelet/restarts.ts';
import { FakeInstallNode } from '../../support/kubernetes/fake-install-node.ts';

// The entries are those of systemd 257. test/e2e/systemd/kubelet-unit.test.ts reads them from a real journal.
let fake: FakeInstallNode;
beforeEach(() => (fake = new FakeInstallNode()));
afterEach(() => fake.remove());

const restarted = { MESSAGE_ID: '5eb03494b6584870a536b337290809b3', N_RESTARTS: '1' };
const exited = (code: string, status: string): object => ({
  ...{ MESSAGE_ID: '98e322203f7a4ed290d09fe03c09fe15', EXIT_CODE: code, EXIT_STATUS: status },
});
const failed = (result: string): object => ({ MESSAGE_ID: 'd9b373ed55a64feb8242e02dbe79a49c', UNIT_RESULT: result });
const succeeded = { MESSAGE_ID: '7ad2d189f7e94e70a38c781354912448' };

describe('the history of a unit', () => {
  test.each([
    ['an exit code', [exited('exited', '3'), failed('exit-code'), restarted], 1, 'exit code 3'],
    ['a signal', [exited('killed', '9'), failed('signal'), restarted], 1, 'signal 9 (SIGKILL)'],
    ['no memory', [exited('killed', '9'), failed('oom-kill')], 0, 'result oom-kill, signal 9 (SIGKILL)'],
    ['a process that is not there yet', [exited('exited', '1'), restarted, failed('resources')], 1, 'result resources'],
    ['no error, after one', [exited('exited', '1'), failed('exit-code'), restarted, succeeded], 1, 'result success'],
  ])('the history of a unit has its restarts and its last end: %s', async (_, journal, restarts, end) => {
    fake.unit({ journal });
    const history = await unitHistory('kubelet.service', 10);
    expect(history?.restarts).toBe(restarts);
    expect(history?.lastEnd && endText(history.lastEnd)).toBe(end);
  });

  test('a unit was started by hand if it ended without a restart, and runs or has ended again', async () => {
    const end = [exited('exited', '1'), failed('exit-code')];
    const again = (count: string): object => ({ ...restarted, N_RESTARTS: count });
    const history = async (...journal: readonly object[]): Promise<unknown> => {
      fake.unit({ journal });
      return unitHistory('kubelet.service', 10);
    };
    const loop = [...end, again('1'), ...end, again('2')];
    const none = { restarts: 2, isStartedByHand: false, counter: 2 };
    expect(await history(...loop)).toMatchObject({ ...none, hasEnded: false });
    // A failed reload does not count as an end of the unit, and neither does a process that ends before its unit.
    expect(await history(...loop, exited('exited', '1'))).toMatchObject({ ...none, hasEnded: false });
    expect(await history(...loop, ...end)).toMatchObject({ ...none, hasEnded: true });
    const byHand = { isStartedByHand: true, counter: 2 };
    expect(await history(...loop, ...end, ...end)).toMatchObject({ ...byHand, restarts: 0, hasEnded: true });
    expect(await history(...loop, ...end, succeeded, again('3'))).toMatchObject({
      ...{ isStartedByHand: true, counter: 3, restarts: 1, hasEnded: false },
    });
  });

  test('a unit has no history if the journal has no entries or cannot be read', async () => {
    fake.unit({ journal: [] });
    expect(await unitHistory('kubelet.service', 10)).toBeUndefined();
    fake.program('journalctl', 'echo "No journal files were found." >&2; exit 1');
    expect(await unitHistory('kubelet.service', 10)).toBeUndefined();
  });
});
