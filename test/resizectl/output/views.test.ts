import { describe, expect, test } from 'vitest';
import { objectText } from '../../../src/resizectl/output/objects.ts';
import { UsageError } from '../../../src/resizectl/output/failure.ts';
import { chooseFrom } from '../../../src/resizectl/output/pods.ts';
import { exitOf } from '../../../src/resizectl/commands/resize.ts';
import { durationText, limitText, sizeText, table } from '../../../src/resizectl/output/text.ts';
import { changesTable, endText, podText, podsTable, stepText } from '../../../src/resizectl/output/views.ts';
import type { WirePodValues, WireResize, WireStep, WireValues } from '../../../src/api/wire/messages.ts';

const span = { seconds: 0, nanos: 1_200_000 };
const ids = ['aaaa1111bbbb2222', 'aaaa3333cccc4444', 'dddd5555eeee6666'];

function values(cpu: string, memory: string): WireValues {
  return {
    limits: { cpu, memory },
    requests: { cpu: '', memory: '' },
    ...{ cpu_max: '', memory_max: '', cpu_shares: 0, cpu_weight: 0, memory_used_bytes: 12_897_485 },
  };
}

const podValues = (memory: string, size: number): WirePodValues => ({
  pod: values('400m', memory),
  containers: [{ id: 'c', name: 'app', values: values('max', '64Mi') }],
  volumes: [{ name: 'cache', size_bytes: size, used_bytes: 0, policy: '' }],
});

const resize: WireResize = {
  ...{ id: 'f00', pod: { sandbox_id: ids[0]!, uid: 'u', namespace: 'default', name: 'web' }, state: 'COMPLETED' },
  ...{ reason: '', message: '', steps: [], created: span, changed: span, tries: 1 },
};

describe('text', () => {
  test('columns are aligned, and a name cannot command the terminal', () => {
    expect(
      table([
        ['A', 'LONGER', 'C'],
        ['one', 'x', ''],
        ['\u001b[2Jtwo', 'y\nz', 'c'],
      ]),
    ).toBe('A         LONGER   C\none       x\n?[2Jtwo   y?z      c\n');
  });

  test('amounts are in the largest unit that fits', () => {
    expect([0, 1023, 1024, 1536, 2 ** 20 * 12.34, 2 ** 40].map(sizeText)).toEqual([
      '0',
      '1023',
      '1Ki',
      '1.5Ki',
      '12.3Mi',
      '1Ti',
    ]);
    expect(['max', '256Mi', '128974848', '500m', ''].map(limitText)).toEqual(['max', '256Mi', '123Mi', '500m', '']);
    const durations = [
      [0, 123_400],
      [0, 45_600_000],
      [3, 440_000_000],
    ] as const;
    expect(durations.map(([seconds, nanos]) => durationText({ seconds, nanos }))).toEqual(['0.1 ms', '46 ms', '3.4 s']);
  });
});

describe('a pod that is named', () => {
  const pods = [
    { sandbox_id: ids[0]!, uid: 'uid-1', namespace: 'default', name: 'web' },
    { sandbox_id: ids[1]!, uid: 'uid-2', namespace: 'other', name: 'web' },
    { sandbox_id: ids[2]!, uid: 'uid-3', namespace: 'default', name: 'aaaa' },
  ];
  // Two sandboxes of one pod: the one has ended.
  const again = [...pods, { sandbox_id: 'ffff', uid: 'uid-3', namespace: 'default', name: 'aaaa' }];

  test('is found by name before id, by the beginning of an id or a uid', () => {
    expect(chooseFrom(again, 'aaaa')).toEqual({ uid: 'uid-3' });
    expect(chooseFrom(pods, 'aaaa1')).toEqual({ sandbox_id: ids[0] });
    expect(chooseFrom(pods, 'dddd')).toEqual({ sandbox_id: ids[2] });
    expect(chooseFrom(again, 'uid-3')).toEqual({ uid: 'uid-3' });
  });

  test('has to be one: else all that might be meant are listed', () => {
    const message = (text: string): string => {
      try {
        return JSON.stringify(chooseFrom(pods, text));
      } catch (error) {
        if (error instanceof UsageError) return error.message;
        throw error;
      }
    };
    const both = '  default/web (aaaa1111bbbb2)\n  other/web (aaaa3333cccc4)';
    expect(message('web')).toBe(`"web" matches several pods, specify one of:\n${both}`);
    expect(message('aaa')).toBe(`"aaa" matches several pods, specify one of:\n${both}`);
    expect(message('uid-')).toMatch(/^"uid-" matches several pods, specify one of:(?:\n {2}.*){3}$/);
    expect(message('we')).toMatch(/^no pod on this node matches "we"/);
  });
});

describe('views', () => {
  test('pods are sorted; one that cannot be read hides no other', () => {
    const web = {
      identity: resize.pod,
      values: podValues('128974848', 2 ** 20),
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

  test('of a resize only what has changed is told', () => {
    expect(changesTable({ before: podValues('128Mi', 2 ** 20), after: podValues('256Mi', 2 ** 21) })).toBe(
      '               BEFORE   AFTER\npod memory     128Mi    256Mi\nvolume cache   1Mi      2Mi\n',
    );
    expect(changesTable({ before: podValues('1Mi', 1), after: podValues('1Mi', 1) })).toMatch(/^nothing changes/);
    expect(changesTable({})).toBe('');
  });

  test('steps are told by names and in units, where these are exact', () => {
    const step = (kind: string, target: string, text: string): WireStep => ({
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

  test('an end is a line, and an exit code', () => {
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
    const states = ['COMPLETED', 'INFEASIBLE', 'DEFERRED', 'CANCELED', 'IN_PROGRESS'] as const;
    expect(states.map((state) => exitOf({ state, reason: '' }))).toEqual([0, 3, 4, 5, 1]);
    expect(exitOf({ state: 'INFEASIBLE', reason: 'UNDO_FAILED' })).toBe(6);
    // What does not fit yet was refused, where it was not to be tried again.
    expect(exitOf({ state: 'CANCELED', reason: 'VOLUME_IN_USE' })).toBe(3);
    expect(exitOf({ state: 'CANCELED', reason: 'SUPERSEDED' })).toBe(5);
  });

  test('programs get names as in the .proto file, times as protobuf has them in JSON', () => {
    const object = {
      time: { seconds: 1_700_000_000, nanos: 123_456_000 },
      step: { took: span, text: 'x' },
      list: [{ size_bytes: 5 }],
    };
    expect(JSON.parse(objectText(object, 'json'))).toEqual({
      time: '2023-11-14T22:13:20.123Z',
      step: { took: '0.0012s', text: 'x' },
      list: [{ size_bytes: 5 }],
    });
    expect(objectText(object, 'json', true).split('\n')).toHaveLength(2);
    expect(objectText({ a: [1] }, 'yaml', true)).toBe('---\na:\n  - 1\n');
  });
});
