import { expect, test } from 'vitest';
import { steadyNow } from '../../../src/core/clock.ts';
import { Code, Metadata } from '../../../src/core/grpc.ts';
import { noLog } from '../../../src/core/observe/interfaces.ts';
import { type EndedCall, serveReceived } from '../../../src/server/unary/serve.ts';
import { CRI_LIMITS, ServerBudget } from '../../../src/server/unary/server-budget.ts';
import type { CallStatus } from '../../../src/server/unary/status.ts';

const call = (cancelled: boolean, deadline: number, request = Buffer.from('q')) => ({
  path: '/s/A',
  request,
  metadata: new Metadata(),
  deadline,
  cancelled,
  signal: new AbortController().signal,
  client: undefined,
});
const echo = ({ request }: { readonly request: Buffer }): Promise<Buffer> => Promise.resolve(request);

/** Serves a call. Resolves with its answer and its end. */
async function serve(
  of: ReturnType<typeof call>,
  budget: ServerBudget,
): Promise<{ answer: Buffer | CallStatus | undefined; end: EndedCall | undefined }> {
  const seen: { answer: Buffer | CallStatus | undefined; end: EndedCall | undefined } = {
    answer: undefined,
    end: undefined,
  };
  const serving = serveReceived(echo, of, (answer) => (seen.answer = answer), {
    log: noLog,
    budget,
    ended: (end) => (seen.end = end),
  });
  // The answer must not be sent before the function has returned.
  expect(seen.answer).toBeUndefined();
  await serving;
  return seen;
}

test.each([
  ['OK', false, Infinity, 0],
  ['CANCELLED before its deadline', true, Infinity, 1],
  ['DEADLINE_EXCEEDED after it', true, -1, 4],
  ['OK if it was answered after its deadline', false, -1, 0],
])('a received call is logged as %s', async (_, cancelled, relative, code) => {
  const { answer, end } = await serve(
    call(cancelled, steadyNow() + relative),
    new ServerBudget(CRI_LIMITS, () => undefined),
  );
  expect(answer).toEqual(Buffer.from('q'));
  expect(end?.code).toBe(code);
});

test.each([
  ['too many calls run', { ...CRI_LIMITS, runningCalls: 0 }, 'handled_calls'],
  ['the requests are too long together', { ...CRI_LIMITS, requestBytes: 0 }, 'requests'],
])('a received call is refused and counted if %s', async (_, limits, budget) => {
  const refused: string[] = [];
  const { answer, end } = await serve(call(false, Infinity), new ServerBudget(limits, (what) => refused.push(what)));
  expect(answer).toMatchObject({ code: Code.RESOURCE_EXHAUSTED });
  expect(end?.code).toBe(Code.RESOURCE_EXHAUSTED);
  expect(refused).toEqual([budget]);
});
