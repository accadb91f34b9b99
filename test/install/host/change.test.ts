import { setTimeout as delay } from 'node:timers/promises';
import { expect, test } from 'vitest';
import { type Change, applyChanges, combineChanges } from '../../../src/install/host/change.ts';

const never = new AbortController().signal;
let did: string[] = [];

function change(name: string, fails: { readonly do?: string; readonly undo?: string } = {}): Change {
  const act = (what: 'do' | 'undo' | 'forget', fault: string | undefined): Promise<void> => {
    did.push(`${what} ${name}`);
    return fault === undefined ? Promise.resolve() : Promise.reject(new Error(fault));
  };
  return {
    description: name,
    do: () => act('do', fails.do),
    undo: () => act('undo', fails.undo),
    forget: () => act('forget', undefined),
  };
}

async function carriedOut(changes: readonly Change[], signal = never) {
  did = [];
  const told: string[] = [];
  const ended = await applyChanges(changes, (line) => told.push(line), signal);
  return { ended, told };
}

test('all in their order; what was kept for undoing goes last', async () => {
  const { ended, told } = await carriedOut([change('a'), change('b')]);
  expect(ended).toBe('done');
  expect(told).toEqual(['done: a', 'done: b']);
  expect(did).toEqual(['do a', 'do b', 'forget a', 'forget b']);
});

test('one fails: it and those before it are undone in reverse, those after it are not touched', async () => {
  const { ended, told } = await carriedOut([change('a'), change('b'), change('c', { do: 'no room' }), change('d')]);
  expect(ended).toBe('undone');
  expect(told).toEqual([
    'done: a',
    'done: b',
    'failed: c: no room',
    'rolled back: c',
    'rolled back: b',
    'rolled back: a',
  ]);
  expect(did).toEqual(['do a', 'do b', 'do c', 'undo c', 'undo b', 'undo a']);
});

test('one that cannot be undone is said, and what it builds upon stays', async () => {
  const { ended, told } = await carriedOut([change('a'), change('b', { undo: 'gone' }), change('c', { do: 'no' })]);
  expect(ended).toBe('undo failed');
  expect(told.slice(2)).toEqual(['failed: c: no', 'rolled back: c', 'NOT rolled back: b: gone', 'left in place: a']);
  expect(did.slice(-2)).toEqual(['undo c', 'undo b']);
});

test('interrupted between two: the next is not begun, and what is done is undone', async () => {
  const ending = new AbortController();
  const first: Change = {
    ...change('a'),
    do: () => Promise.resolve().then(() => ending.abort(new Error('ended by SIGINT'))),
  };
  const { ended, told } = await carriedOut([first, change('b')], ending.signal);
  expect(ended).toBe('undone');
  expect(told).toEqual(['done: a', 'not started: b: ended by SIGINT', 'rolled back: a']);
  expect(did).toEqual(['undo a']);
});

test('what takes longer than a second is said when it begins', async () => {
  const { told } = await carriedOut([{ ...change('a'), do: () => delay(1200) }]);
  expect(told).toEqual(['a ...', 'done: a']);
});

test('several as one: only what was begun is undone, and what follows them follows that too', async () => {
  const settled = () => {
    did.push('settle');
    return Promise.resolve();
  };
  const parts = [change('a'), change('b', { do: 'no', undo: 'stays' }), change('c')];
  const { ended, told } = await carriedOut([combineChanges('all', parts, settled)]);
  expect(ended).toBe('undo failed');
  expect(told).toEqual(['failed: all: no', 'NOT rolled back: all: stays']);
  expect(did).toEqual(['do a', 'do b', 'undo b', 'undo a', 'settle']);
  await carriedOut([combineChanges('all', [change('a'), change('b')], settled)]);
  expect(did).toEqual(['do a', 'do b', 'settle', 'forget a', 'forget b']);
});
