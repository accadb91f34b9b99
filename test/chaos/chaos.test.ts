import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { descriptorsOf } from '../support/cri/client.ts';
import type { Fault } from './faults/faults.ts';
import { faults } from './faults/index.ts';
import { ChaosCounter } from './figures.ts';
import { badCalls, megabytesOf, violations } from './invariants.ts';
import { Random, schedule } from './random.ts';
import { Stage } from './stage.ts';

const seed = Number(process.env['CHAOS_SEED']);
const rounds = Number(process.env['CHAOS_ROUNDS']);
const title = process.env['CHAOS_TITLE'] ?? '';
/** The log of the shim, printed for a failed round. */
const LOG_LINES = 300;
const stage = new Stage();
const counter = new ChaosCounter();
/** The file with the figures, which the process that started the node reads. */
const out = join(process.env['NODE_OUT'] ?? '.', 'chaos.json');
let descriptors = 0;

beforeAll(async () => {
  await stage.begin();
  await stage.settled();
  descriptors = descriptorsOf(stage.shim.pid);
});
afterAll(() => stage.end());

/** Runs one round. Returns the problems during the fault or after it. */
async function round(fault: Fault, random: Random): Promise<string[]> {
  await fault.prepare?.(stage);
  const watcher = await stage.watch();
  stage.startLoad(random, fault.failsOpen === true ? 'lower' : 'any');
  const { load } = stage;
  let above: readonly string[] = [];
  try {
    await load.more(1, 'resize');
    await fault.run(stage, random);
  } finally {
    await load.stop();
    ({ violations: above } = await watcher.report());
  }
  await stage.settled();
  const after = await violations(stage, descriptors);
  await stage.reset();
  counter.add(fault.name, load.calls, megabytesOf(stage.shim.pid));
  writeFileSync(out, JSON.stringify(counter.figures));
  return [...badCalls(load.calls, fault), ...above, ...after, ...(await violations(stage, descriptors))];
}

describe('a node with a fault is whole again after it', () => {
  const chosen = faults.filter(({ name }) => name.includes(title));
  for (const [index, fault] of schedule(chosen, rounds, seed).entries()) {
    test(`round ${index + 1}: a node is whole again after the fault ${fault.name}`, async () => {
      const found = await round(fault, new Random(seed + index)).catch((error: unknown) => [String(error)]);
      if (found.length > 0) {
        process.stderr.write(`${stage.shim.lastLines(LOG_LINES).join('\n')}\n`);
        await stage.renew();
      }
      expect(found).toEqual([]);
    });
  }
});
