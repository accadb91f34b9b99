import { isDeepStrictEqual } from 'node:util';
import type { ServiceError } from '@grpc/grpc-js';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import type { CriClient } from '../../../support/cri/client.ts';
import { type Refusal, refusalOf } from '../../../support/resize-api/client.ts';
import type { BadCase, BadInputNode, PassedOn } from './case.ts';
import { limits, passedOn, removePods, startNode } from './case.ts';
import { containerCases } from './container-cases.ts';
import { podCases } from './pod-cases.ts';
import { resizeCases } from './resize-cases.ts';

/** Rejected requests have a reason and change nothing on the node. All cases run on one pod, one after the other. */

const cases = [...containerCases, ...podCases, ...resizeCases];

let node: BadInputNode;
/** The snapshot after the previous case. */
let before: Awaited<ReturnType<BadInputNode['snapshot']>>;

beforeAll(async () => {
  node = await startNode();
  before = await node.snapshot();
});

afterAll(async () => {
  await removePods(node);
  expect(await node.stop()).toBe(0);
  const faults = node.shim.log.filter(({ level, msg }) => level === 'error' || /fault/.test(msg));
  expect(faults).toEqual([]);
});

interface Answer {
  readonly code: number;
  readonly message: string;
}

async function answerOf(call: Promise<unknown>): Promise<Answer & { readonly error?: ServiceError }> {
  try {
    await call;
    return { code: 0, message: '' };
  } catch (error) {
    const { code, details } = error as ServiceError;
    return { code, message: details, error: error as ServiceError };
  }
}

function send({ call, request }: BadCase): Promise<unknown> {
  const message = request(node);
  const client = call === 'ResizePod' ? node.api : node.cri;
  return Buffer.isBuffer(message) ? client.raw(call, message) : client.call(call, message);
}

async function refusalBy(bad: BadCase): Promise<Refusal> {
  const { error } = await answerOf(send(bad));
  if (error === undefined) throw new Error('the request was not rejected');
  return refusalOf(error);
}

/** Returns the answer of the runtime without a shim. */
async function without({ call, request }: BadCase, { instead }: PassedOn): Promise<Answer> {
  const message = (instead?.request ?? request)(node);
  const method = instead?.method ?? call;
  const { code, message: text } = await answerOf(
    Buffer.isBuffer(message) ? node.direct.raw(method, message) : node.direct.call(method, message),
  );
  return { code, message: text };
}

async function expectNothingChanged(): Promise<void> {
  expect(await node.snapshot()).toEqual(before);
}

test('KEP-1287: the rejection of invalid values is tested with more than seventy cases of different names', () => {
  const names = new Set(cases.map(({ call, name }) => `${call} ${name}`));
  expect(names.size).toBe(cases.length);
  expect(cases.length).toBeGreaterThan(70);
});

describe.each(['UpdateContainerResources', 'UpdatePodSandboxResources', 'ResizePod'] as const)(
  'invalid requests of %s',
  (call) => {
    test.each(cases.filter((bad) => bad.call === call))('an invalid request changes nothing: $name', async (bad) => {
      const answer = bad.isForwardedIfImplemented && node.implementsPodUpdate ? passedOn : bad.answer;
      if (answer.by === 'shim') {
        const { code, reason, message } = await refusalBy(bad);
        expect({ code, reason }).toEqual({ code: answer.code, reason: answer.reason });
        for (const part of answer.says) expect(message).toContain(part);
        expect(message.length).toBeLessThan(1000);
        await expectNothingChanged();
        return;
      }
      const { code, message } = await answerOf(send(bad));
      await expectNothingChanged();
      expect({ code, message }).toEqual(await without(bad, answer));
      // A runtime that fails half-way without a shim leaves changes behind.
      const left = await node.snapshot();
      if (isDeepStrictEqual(left, before)) return;
      await node.reset();
      before = await node.snapshot();
    });
  },
);

const update = (client: CriClient, container: string, linux: object): Promise<Answer> =>
  answerOf(client.call('UpdateContainerResources', { container_id: container, linux }));

describe('concurrent requests', () => {
  test('two invalid updates of one container are both rejected', async () => {
    const id = node.pod.id('a');
    const answers = await Promise.all([{ cpu_quota: 5 }, { cpu_quota: 6 }].map((linux) => update(node.cri, id, linux)));
    expect(answers.map(({ code }) => code)).toEqual([3, 3]);
    await expectNothingChanged();
  });

  test('an invalid update does not supersede a waiting valid one', async () => {
    const id = node.pod.id('a');
    const good = { ...limits(64), oom_score_adj: 0 };
    const bad = { ...limits(96), cpu_quota: 5 };
    const answers = await Promise.all([good, good, bad, good, bad].map((linux) => update(node.cri, id, linux)));
    expect(answers.map(({ code }) => code)).toEqual([0, 0, 3, 0, 3]);
    await expectNothingChanged();
  });
});
