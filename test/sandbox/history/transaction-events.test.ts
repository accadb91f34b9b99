import { expect, test } from 'vitest';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { bytes } from '../../../src/core/quantities/numbers.ts';
import { type PlannedTransaction, TransactionEvents } from '../../../src/sandbox/history/transaction-events.ts';

const transaction = {} as PlannedTransaction;
const record = { step: { kind: 'pod-memory', from: bytes(1), to: bytes(2) }, at: 0, ms: 1 } as const;

test('each listener receives all transaction events, even if another listener fails', () => {
  const errors: unknown[] = [];
  const events = new TransactionEvents({ ...noLog, error: (fields) => void errors.push(fields) });
  const heard: unknown[] = [];
  events.listen({
    stepped: () => {
      throw new Error('no room');
    },
  });
  events.listen({
    rejected: (error) => void heard.push(['rejected', error]),
    begins: (of) => void heard.push(['begins', of]),
    stepped: (_of, step) => void heard.push(['stepped', step]),
    skipped: (_of, step, error) => void heard.push(['skipped', step, error]),
    applied: () => void heard.push('applied'),
    rolledBack: (_of, error, isLeft) => void heard.push(['rolledBack', error, isLeft]),
    ends: (_of, records, error) => void heard.push(['ends', records, error]),
  });
  events.rejected('in use');
  events.begins(transaction);
  events.stepped(transaction, record);
  events.skipped(transaction, record.step, 'refused');
  events.applied(transaction);
  events.rolledBack(transaction, 'late', true);
  events.ends(transaction, [record], 'late');
  expect(heard).toEqual([
    ['rejected', 'in use'],
    ['begins', transaction],
    ['stepped', record],
    ['skipped', record.step, 'refused'],
    'applied',
    ['rolledBack', 'late', true],
    ['ends', [record], 'late'],
  ]);
  expect(errors).toEqual([{ error: 'no room' }]);
});
