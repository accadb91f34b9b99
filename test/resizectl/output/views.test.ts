import { describe, expect, test } from 'vitest';
import { exitOf } from '../../../src/resizectl/commands/resize.ts';
import { changesTable, endText, podText, podsTable, stepText } from '../../../src/resizectl/output/views.ts';
import type { Messages } from '../../../src/server/api/messages.ts';
import { MiB } from '../../../src/core/quantities/sizes.ts';

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
