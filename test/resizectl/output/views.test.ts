import { describe, expect, test } from 'vitest';
import { MiB } from '../../../src/core/quantities/sizes.ts';
import { eventLine } from '../../../src/resizectl/commands/events.ts';
import { exitOf } from '../../../src/resizectl/commands/resize.ts';
import { objectText } from '../../../src/resizectl/output/text.ts';
import {
  changesTable,
  endText,
  historyTable,
  podDescription,
  podsTable,
  podText,
  requesterText,
  stepText,
} from '../../../src/resizectl/output/views.ts';
import type { Messages } from '../../../src/server/api/messages.ts';

const span = { seconds: 0, nanos: 1_200_000 };
const ids = ['aaaa1111bbbb2222', 'aaaa3333cccc4444', 'dddd5555eeee6666'];

function values(cpu: string, memory: string): Messages['Values'] {
  return {
    limits: { cpu, memory },
    requests: { cpu: '', memory: '' },
    cpu_max: '',
    memory_max: '',
    cpu_shares: 0,
    cpu_weight: 0,
    memory_used_bytes: 12_897_485,
  };
}

const podValues = (memory: string, size: number): Messages['PodValues'] => ({
  pod: values('400m', memory),
  containers: [{ id: 'c', name: 'app', values: values('max', '64Mi') }],
  volumes: [{ name: 'cache', size_bytes: size, used_bytes: 0, policy: '' }],
});

const resize: Messages['Resize'] = {
  id: 'f00',
  pod: { sandbox_id: ids[0]!, uid: 'u', namespace: 'default', name: 'web' },
  state: 'COMPLETED',
  reason: '',
  message: '',
  steps: [],
  created: span,
  changed: span,
  tries: 1,
};

describe('views of resizectl', () => {
  test('the table of pods is sorted, and shows pods that cannot be read', () => {
    const web = {
      identity: resize.pod,
      values: podValues('128974848', MiB),
      last_resize: { id: 'f', state: 'DEFERRED', reason: '', message: '' },
    } as const;
    const gone = {
      identity: { ...resize.pod, name: 'db' },
      unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'no file' },
    };
    expect(podsTable([web, gone])).toBe(
      'NAMESPACE   NAME   SANDBOX         CPU    MEMORY   USED     CONTAINERS   VOLUMES   RESIZE\n' +
        'default     db     aaaa1111bbbb2   ?      ?        ?        ?            ?         CGROUP_UNAVAILABLE\n' +
        'default     web    aaaa1111bbbb2   400m   123Mi    12.3Mi   1            1         Deferred\n',
    );
    expect(podsTable([])).toBe('no pods on this node\n');
    expect(podText(gone)).toBe('default/db: CGROUP_UNAVAILABLE: no file\n');
  });

  test('the table of pods shows the error of a pod that is not recovered instead of its last resize', () => {
    const pod = {
      identity: resize.pod,
      values: podValues('128Mi', MiB),
      last_resize: { id: 'f', state: 'INFEASIBLE', reason: '', message: '' },
    } as const;
    const last_error = { reason: 'UNDO_FAILED', message: 'memory.max: EBUSY' };
    const lastCell = (row: string | undefined): string | undefined => row?.trimEnd().split(/ {2,}/).at(-1);
    expect(lastCell(podsTable([{ ...pod, last_error }]).split('\n')[1])).toBe('UNDO_FAILED');
    expect(lastCell(podsTable([pod]).split('\n')[1])).toBe('Infeasible');
  });

  test('the changes of a resize list only changed values', () => {
    expect(changesTable({ before: podValues('128Mi', MiB), after: podValues('256Mi', 2 ** 21) })).toBe(
      '               BEFORE   AFTER\npod memory     128Mi    256Mi\nvolume cache   1Mi      2Mi\n',
    );
    expect(changesTable({ before: podValues('1Mi', 1), after: podValues('1Mi', 1) })).toMatch(/^nothing changes/);
    expect(changesTable({})).toBe('');
  });

  test('the text of a step has names, and has units where they are exact', () => {
    const step = (kind: Messages['Step']['kind'], target: string, text: string): Messages['Step'] => ({
      kind,
      target,
      text,
      at: span,
      took: span,
    });
    expect(
      stepText(
        step(
          'CONTAINER',
          'app',
          'container 0a1b memory.max 268435456 -> 268435457, cpu.max max 100000 -> 50000 100000',
        ),
      ),
    ).toBe('container app memory.max 256Mi -> 268435457, cpu.max max 100000 -> 50000 100000');
    expect(stepText(step('POD_MEMORY', '', 'pod memory.max max -> 1073741824'))).toBe('pod memory.max max -> 1Gi');
    expect(stepText(step('VOLUME', 'cache', 'volume cache 67108864 -> 4096'))).toBe('volume cache 64Mi -> 4Ki');
    expect(stepText(step('VOLUME', 'cache', 'volume cache 1342177280 -> 4097'))).toBe('volume cache 1280Mi -> 4097');
    expect(stepText(step('POD_CPU', '', 'pod cpu.max 200000 100000 -> 1024 100000'))).toBe(
      'pod cpu.max 200000 100000 -> 1024 100000',
    );
  });

  test('a finished resize leads to one line and an exit code', () => {
    expect(endText({ ...resize, steps: [{ kind: 'VOLUME', target: 'a', text: '', at: span, took: span }] })).toBe(
      'resize f00 of default/web: Completed: 1 step\n',
    );
    const deferred = {
      ...resize,
      state: 'DEFERRED',
      reason: 'VOLUME_IN_USE',
      message: 'full',
      tries: 2,
      next_try: { seconds: 1, nanos: 0 },
    } as const;
    expect(endText(deferred)).toBe(
      'resize f00 of default/web: Deferred: VOLUME_IN_USE: full; tried 2 times, next at 1970-01-01T00:00:01.000Z\n',
    );
    const rolledBack = { ...resize, state: 'CANCELED', reason: 'RECLAIM_TIMEOUT', rolled_back: true } as const;
    expect(endText(rolledBack)).toBe('resize f00 of default/web: Canceled (rolled back): RECLAIM_TIMEOUT\n');
    const states = ['COMPLETED', 'INFEASIBLE', 'DEFERRED', 'CANCELED', 'IN_PROGRESS'] as const;
    expect(states.map((state) => exitOf({ state, reason: '' }))).toEqual([0, 3, 4, 5, 1]);
    expect(exitOf({ state: 'INFEASIBLE', reason: 'UNDO_FAILED' })).toBe(6);
    // A resize that does not fit yet was rejected if the request does not allow a retry.
    expect(exitOf({ state: 'CANCELED', reason: 'VOLUME_IN_USE' })).toBe(3);
    expect(exitOf({ state: 'CANCELED', reason: 'SUPERSEDED' })).toBe(5);
  });
});

const pod: Messages['Pod'] = {
  identity: { sandbox_id: 'a', uid: 'u', namespace: 'default', name: 'web' },
  unreadable: { reason: 'CGROUP_UNAVAILABLE', message: 'no file' },
};

test('describe shows all declared containers with kind, state and limits, and their source', () => {
  const declared = {
    source: 'kubelet-state',
    containers: [
      { name: 'web', kind: 'app', state: 'running', limits: { cpu: '500m', memory: '128Mi' } },
      { name: 'debugger', kind: 'ephemeral', state: 'running', limits: { cpu: '', memory: '' } },
      { name: 'log', kind: 'unknown', state: 'declared', limits: { cpu: '', memory: '' } },
    ],
  };
  expect(podDescription({ ...pod, declared })).toContain(
    [
      'Declared (from kubelet-state):',
      '                       KIND        STATE      CPU    MEMORY',
      '  container web        app         running    500m   128Mi',
      '  container debugger   ephemeral   running',
      '  container log        unknown     declared',
      '',
    ].join('\n'),
  );
  expect(JSON.parse(objectText({ ...pod, declared }, 'json'))).toMatchObject({ declared });
});

test('describe shows no declared containers for a pod that no source knows', () => {
  expect(podDescription(pod)).not.toContain('Declared');
  expect(podDescription({ ...pod, declared: { source: 'inference', containers: [] } })).not.toContain('Declared');
});

describe('the history in views', () => {
  const identity = { sandbox_id: 'aaaa1111bbbb2222', uid: 'u', namespace: 'default', name: 'web' };
  const kubelet: Messages['Requester'] = { kind: 'KUBELET', process: 'kubelet', pid: 812 };
  const time = { seconds: 1_800_000_000, nanos: 123_000_000 };
  const deferred: Messages['ResizeSummary'] = {
    ...{ id: '1f3c9a2b-0000-4000-8000-000000000000', state: 'DEFERRED', reason: 'MEMORY_NOT_RECLAIMABLE', count: 3 },
    ...{ message: '90Mi are in use', requester: kubelet, rolled_back: false, created: time, changed: time },
    changes: [{ value: 'container app memory', from: '256Mi', to: '64Mi' }],
  };
  const pod: Messages['Pod'] = { identity, last_resize: deferred, history: [deferred] };

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

describe('pending resizes of kubelet', () => {
  const values = (memory: number): Messages['Values'] => ({
    limits: { cpu: '', memory: String(memory * MiB) },
    requests: { cpu: '', memory: '' },
    cpu_max: '',
    memory_max: String(memory * MiB),
    cpu_shares: 0,
    cpu_weight: 0,
    memory_used_bytes: 0,
  });

  const pod: Messages['Pod'] = {
    identity: { sandbox_id: 'a'.repeat(64), uid: 'uid-web', namespace: 'shop', name: 'web' },
    values: { pod: values(192), containers: [{ id: 'c'.repeat(64), name: 'a', values: values(192) }], volumes: [] },
  };

  test('describe shows the pending resize of kubelet, and why the decrease is deferred', () => {
    const text = podDescription({
      ...pod,
      kubelet: {
        values: { pod: values(64), containers: [{ id: 'c'.repeat(64), name: 'a', values: values(64) }], volumes: [] },
        state: 'DEFERRED',
        reason: 'MEMORY_NOT_RECLAIMABLE',
        message: 'container a of pod shop/web: 104857600 bytes are in use',
        reclaimed_bytes: 0,
      },
    });
    expect(text).toMatch(
      /^Decrease: +Deferred: MEMORY_NOT_RECLAIMABLE: container a of pod shop\/web: 100Mi are in use/m,
    );
    expect(text).toMatch(/Pending kubelet resize:\n {2}pod memory +64Mi\n {2}container a memory +64Mi/);
    expect(text.indexOf('Current values in the kernel')).toBeLessThan(text.indexOf('Pending kubelet resize'));
  });

  test('describe shows no pending resize if kubelet has none', () => {
    expect(podDescription(pod)).not.toMatch(/kubelet|Decrease/);
  });

  test('the table of pods shows a deferred decrease until kubelet has applied it', () => {
    const last = { id: 'r1', state: 'COMPLETED', reason: '', message: '' } as const;
    const decrease = (state: 'DEFERRED' | 'STATE_UNSPECIFIED'): Messages['Pod'] => ({
      ...pod,
      last_resize: last,
      kubelet: { values: pod.values!, state, reason: '', message: '', reclaimed_bytes: 0 },
    });
    expect(podsTable([decrease('DEFERRED')])).toMatch(/ Deferred\n$/);
    expect(podsTable([decrease('STATE_UNSPECIFIED')])).toMatch(/ Completed\n$/);
  });
});

describe('volumes', () => {
  const nothing = { cpu: '', memory: '' };
  const values: Messages['Values'] = {
    limits: { cpu: '1', memory: '128Mi' },
    requests: nothing,
    cpu_max: '',
    memory_max: '',
    cpu_shares: 0,
    cpu_weight: 0,
    memory_used_bytes: 0,
  };
  const withVolume = (more: Partial<Messages['PodValues']['volumes'][number]>): string =>
    podText({
      identity: { sandbox_id: 's', uid: 'u', namespace: 'default', name: 'web' },
      values: {
        pod: values,
        containers: [],
        volumes: [{ name: 'cache', size_bytes: 160 * MiB, used_bytes: 0, policy: '160Mi', ...more }],
      },
    });

  interface Parts {
    readonly size: number;
    readonly request: string;
  }

  const podWith = ({ size = 160 * MiB, request = '' }: Partial<Parts>): Messages['PodValues'] => ({
    pod: { ...values, requests: { cpu: '', memory: request } },
    containers: [],
    volumes: [{ name: 'cache', size_bytes: size, used_bytes: 0, policy: '' }],
  });

  describe('a volume in the text of a pod', () => {
    test('the text of a pod has one row for a volume without warning and error', () => {
      expect(withVolume({ warning: '' })).toMatch(/volume cache +160Mi +0 +160Mi\n$/);
    });

    test('the text of a pod shows a warning and the last error below a volume, without control characters', () => {
      const last_error = { reason: 'VOLUME_IN_USE', message: 'stores \u001b[31m24' };
      const text = withVolume({ warning: 'has 160Mi, more than 128Mi', last_error });
      const [error, warning] = text.trimEnd().split('\n').reverse();
      expect(warning).toBe('volume cache has 160Mi, more than 128Mi');
      expect(error).toMatch(/^volume cache: VOLUME_IN_USE: stores .*\[31m24$/);
      expect(error).not.toContain('\u001b');
    });
  });

  describe('the changes of a resize', () => {
    const changes = (before: Partial<Parts>, after: Partial<Parts>): string =>
      changesTable({ before: podWith(before), after: podWith(after) });

    test.each([
      ['1500Mi', '1530Mi', 1500, 1530],
      ['10241Mi', '10280Mi', 10_241, 10_280],
    ])(
      'the changes of a resize show a volume that grows by less than a tenth of its unit: %s -> %s',
      (before, after, from, to) => {
        expect(changes({ size: from * MiB }, { size: to * MiB })).toBe(
          `               BEFORE${' '.repeat(Math.max(0, before.length - 6))}   AFTER\nvolume cache   ${before}   ${after}\n`,
        );
      },
    );

    test('the changes of a resize show a memory request that is not a whole number of kibibytes', () => {
      expect(changes({ request: '129000000' }, { request: '129010000' })).toMatch(
        /^pod memory request +129000000 +129010000$/m,
      );
    });
  });
});
