import { expect, test } from 'vitest';
import { type PostingContext, posted } from '../../../src/install/rollout/context.ts';
import { ApiRefusal } from '../../../src/kubernetes/client/errors.ts';
import { VirtualClock } from '../../support/virtual-clock.ts';

/** Posts an event to an API server that answers each try with the next error, and after the last one with success. */
async function posting(...errors: readonly Error[]): Promise<{ lines: readonly string[]; tries: number; ms: number }> {
  const clock = new VirtualClock();
  const lines: string[] = [];
  let tries = 0;
  const context: PostingContext = {
    ...{ clock, random: () => 0, say: (line: string) => void lines.push(line) },
    eventToPost: () => () => {
      const error = errors[tries];
      tries += 1;
      return error === undefined ? Promise.resolve() : Promise.reject(error);
    },
  };
  let isOver = false;
  void posted(context, 'ShimInstalled', 'kubelet runs', new AbortController().signal).finally(() => (isOver = true));
  await clock.until(() => isOver, 60_000);
  return { lines, tries, ms: clock.passed };
}

const forbidden = new ApiRefusal(
  403,
  'events.events.k8s.io is forbidden: User "system:serviceaccount:cri-resize-shim:x" cannot create resource "events" in API group "events.k8s.io" in the namespace "default"',
);

test('an event is given up immediately without the right to create it, and the log names the right', async () => {
  expect(await posting(forbidden)).toEqual({
    lines: [
      `the event was not created: ${forbidden.message}; the installer needs the right to create events (events.k8s.io) in the namespace default`,
    ],
    tries: 1,
    ms: 0,
  });
});

test('an event that the API server cannot store is created by a later try', async () => {
  const { lines, tries } = await posting(new ApiRefusal(503, 'etcd has no leader'), new ApiRefusal(429, ''));
  expect([lines, tries]).toEqual([
    [
      'the event cannot be created: HTTP 503: etcd has no leader; trying again',
      'the event cannot be created: HTTP 429; trying again',
    ],
    3,
  ]);
});
