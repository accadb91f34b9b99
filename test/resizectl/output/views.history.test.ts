import { describe, expect, test } from 'vitest';
import { eventLine } from '../../../src/resizectl/commands/events.ts';
import { historyTable, requesterText, podDescription, podsTable } from '../../../src/resizectl/output/views.ts';
import type { Messages } from '../../../src/server/api/messages.ts';

const identity = { sandbox_id: 'aaaa1111bbbb2222', uid: 'u', namespace: 'default', name: 'web' };
const kubelet: Messages['Requester'] = { kind: 'KUBELET', process: 'kubelet', pid: 812 };
const time = { seconds: 1_800_000_000, nanos: 123_000_000 };
const deferred: Messages['ResizeSummary'] = {
  ...{ id: '1f3c9a2b-0000-4000-8000-000000000000', state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE', count: 3 },
  ...{ message: '90Mi are in use', requester: kubelet, rolled_back: false, created: time, changed: time },
  changes: [{ value: 'container app memory', from: '256Mi', to: '64Mi' }],
};
const pod: Messages['Pod'] = { identity, last_resize: deferred, history: [deferred] };

describe('the history in views', () => {
  test.each<[Messages['Requester'] | undefined, string]>([
    [kubelet, 'kubelet (812)'],
    [{ kind: 'KUBELET', process: 'k3s-server', pid: 9 }, 'kubelet (k3s-server, 9)'],
    [{ kind: 'CRI_CLIENT', process: 'crictl', pid: 7 }, 'crictl (7)'],
    [{ kind: 'CRI_CLIENT', process: '', pid: 0 }, 'CRI client'],
    [{ kind: 'CRI_CLIENT', process: '\u001b[31m', pid: 7 }, '?[31m (7)'],
    [{ kind: 'API', process: 'resizectl', pid: 5 }, 'API (resizectl, 5)'],
    [{ kind: 'ANNOTATION', process: '', pid: 0 }, 'annotation'],
    [{ kind: 'SHIM', process: '', pid: 0 }, 'shim'],
    [undefined, ''],
  ])('the requester %j is shown as "%s"', (requester, text) => {
    expect(requesterText(requester)).toBe(text);
  });

  test('a row of the history has time, id, requester, changes and outcome', () => {
    const rolledBack: Messages['ResizeSummary'] = { ...deferred, state: 'INFEASIBLE', rolled_back: true, count: 1 };
    const [, ...rows] = historyTable([deferred, rolledBack]).trimEnd().split('\n');
    const cells = ['2027-01-15 08:00:00Z', '1f3c9a2b', 'kubelet (812)', 'container app memory 256Mi -> 64Mi'];
    const why = 'MEMORY_NOT_RECLAIMABLE: 90Mi are in use';
    expect(rows.map((row) => row.split(/ {3,}/))).toEqual([
      [...cells, `Deferred (3 times): ${why}`],
      [...cells, `Infeasible (rolled back): ${why}`],
    ]);
    expect(historyTable([])).toBe('');
  });

  test('describe shows the last resizes, and get pods -o wide shows the requester of the last one', () => {
    expect(podDescription(pod)).toContain('Last resizes:\n  TIME');
    expect(podsTable([pod], true)).toMatch(/ kubelet \(812\) {3,}2027-01-15 08:00:00Z {3,}container app memory .*\n$/);
    expect(podsTable([pod])).not.toContain('kubelet');
  });

  test('describe shows the last resize of a pod of a shim without history', () => {
    const { id, state, reason, message } = deferred;
    const older = { identity, last_resize: { id, state, reason, message } };
    expect(podDescription(older)).toContain(`${id} Deferred: MEMORY_NOT_RECLAIMABLE: 90Mi are in use`);
    expect(podDescription(older)).not.toContain('Last resizes');
  });

  test('the line of an event shows no changes until the previous values are known', () => {
    const changes = [{ value: 'pod cpu', from: '', to: '1' }];
    const line = (state: 'PROPOSED' | 'INFEASIBLE'): string =>
      eventLine({ resize_id: 'f', pod: identity, time, state: { state, reason: '', message: '', changes } }, 0);
    expect(line('PROPOSED')).toMatch(/ Proposed\n$/);
    expect(line('INFEASIBLE')).toMatch(/ Infeasible {2}pod cpu \? -> 1\n$/);
  });

  test('the line of an event has the time in UTC, and the date unless it is today', () => {
    const event = { resize_id: deferred.id, pod: identity, time, requester: kubelet, state: deferred };
    const rest =
      '1f3c9a2b  default/web  Deferred (3 times)  by kubelet (812)  container app memory 256Mi -> 64Mi: MEMORY_NOT_RECLAIMABLE: 90Mi are in use\n';
    expect(eventLine(event, time.seconds * 1000)).toBe(`08:00:00.123Z  ${rest}`);
    expect(eventLine(event, time.seconds * 1000 + 86_400_000)).toBe(`2027-01-15 08:00:00.123Z  ${rest}`);
  });
});
