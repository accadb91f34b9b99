import { expect, test, vi } from 'vitest';
import {
  applyChanges,
  type Change,
  ChangedMeanwhile,
  combineChanges,
  probeChanges,
} from '../../../src/install/host/change.ts';
import { LONG_WAIT } from '../../support/long-wait.ts';

const never = new AbortController().signal;
let actions: string[] = [];

function change(name: string, fails: { readonly do?: string; readonly undo?: string } = {}): Change {
  const act = (what: 'do' | 'undo' | 'forget', fault: string | undefined): Promise<void> => {
    actions.push(`${what} ${name}`);
    return fault === undefined ? Promise.resolve() : Promise.reject(new Error(fault));
  };
  return {
    description: name,
    do: () => act('do', fails.do),
    undo: () => act('undo', fails.undo),
    forget: () => act('forget', undefined),
  };
}

async function run(changes: readonly Change[], signal = never, lines: string[] = []) {
  actions = [];
  const ended = await applyChanges(changes, (line) => lines.push(line), signal);
  return { ended, lines };
}

test('all changes are applied in order, and then their backups are removed', async () => {
  const { ended, lines } = await run([change('a'), change('b')]);
  expect(ended).toBe('done');
  expect(lines).toEqual(['done: a', 'done: b']);
  expect(actions).toEqual(['do a', 'do b', 'forget a', 'forget b']);
});

test('install: a failed change and those before it are rolled back in reverse order; later changes do not start', async () => {
  const { ended, lines } = await run([change('a'), change('b'), change('c', { do: 'no room' }), change('d')]);
  expect(ended).toBe('undone');
  expect(lines).toEqual([
    'done: a',
    'done: b',
    'failed: c: no room',
    'rolled back: c',
    'rolled back: b',
    'rolled back: a',
  ]);
  expect(actions).toEqual(['do a', 'do b', 'do c', 'undo c', 'undo b', 'undo a']);
});

test('changes are rolled back and reported as overtaken if something else has changed the target of one', async () => {
  const overtaken: Change = { ...change('b'), do: () => Promise.reject(new ChangedMeanwhile('b has changed')) };
  const { ended, lines } = await run([change('a'), overtaken]);
  expect(ended).toBe('overtaken');
  expect(lines).toEqual(['done: a', 'failed: b: b has changed', 'rolled back: b', 'rolled back: a']);
  expect((await run([change('a', { undo: 'gone' }), overtaken])).ended).toBe('undo failed');
});

test('a change that cannot be rolled back is reported, and the changes before it stay', async () => {
  const { ended, lines } = await run([change('a'), change('b', { undo: 'gone' }), change('c', { do: 'no' })]);
  expect(ended).toBe('undo failed');
  expect(lines.slice(2)).toEqual(['failed: c: no', 'rolled back: c', 'NOT rolled back: b: gone', 'left in place: a']);
  expect(actions.slice(-2)).toEqual(['undo c', 'undo b']);
});

test('an interruption between two changes rolls back the applied ones', async () => {
  const ending = new AbortController();
  const first: Change = {
    ...change('a'),
    do: () => Promise.resolve().then(() => ending.abort(new Error('ended by SIGINT'))),
  };
  const { ended, lines } = await run([first, change('b')], ending.signal);
  expect(ended).toBe('undone');
  expect(lines).toEqual(['done: a', 'not started: b: ended by SIGINT', 'rolled back: a']);
  expect(actions).toEqual(['undo a']);
});

test('a change that takes longer than a second is reported when it starts', async () => {
  const lines: string[] = [];
  const begun = performance.now();
  const isReported = (): Promise<void> => vi.waitFor(() => expect(lines).toEqual(['a ...']), LONG_WAIT);
  await run([{ ...change('a'), do: isReported }], never, lines);
  expect(performance.now() - begun).toBeGreaterThan(990);
  expect(lines).toEqual(['a ...', 'done: a']);
});

test('a group of changes rolls back those that have started, and settles after each run', async () => {
  const settled = () => {
    actions.push('settle');
    return Promise.resolve();
  };
  const parts = [change('a'), change('b', { do: 'no', undo: 'stays' }), change('c')];
  const { ended, lines } = await run([combineChanges('all', parts, settled)]);
  expect(ended).toBe('undo failed');
  expect(lines).toEqual(['failed: all: no', 'NOT rolled back: all: stays']);
  expect(actions).toEqual(['do a', 'do b', 'undo b', 'undo a', 'settle']);
  await run([combineChanges('all', [change('a'), change('b')], settled)]);
  expect(actions).toEqual(['do a', 'do b', 'settle', 'forget a', 'forget b']);
});

test('changes are probed without being made, and each problem is reported', async () => {
  actions = [];
  const immutable = (): Promise<void> => Promise.reject(new Error('it is immutable'));
  const changes = [
    change('a'),
    { ...change('b'), probe: () => Promise.resolve() },
    { ...change('c'), probe: immutable },
    combineChanges('all', [{ ...change('d'), probe: immutable }], () => Promise.resolve()),
  ];
  expect(await probeChanges(changes)).toEqual([`${change('c').description}: it is immutable`, 'all: it is immutable']);
  expect(actions).toEqual([]);
});
