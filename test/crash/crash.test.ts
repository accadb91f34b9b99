import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { CriClient } from '../support/cri/client.ts';
import { Campaign, type ScenarioReport } from './campaign.ts';
import { CrashingShim } from './crashing-shim.ts';
import { scenarios } from './scenarios/index.ts';

const shim = new CrashingShim();
const direct = new CriClient('unix:///run/containerd/containerd.sock');
const pairs = new Set<string>();
const reports: ScenarioReport[] = [];
/** The report for the process that started the node. */
const out = join(process.env['NODE_OUT'] ?? '.', 'crash.json');

beforeAll(async () => {
  expect(await shim.start()).toBe(true);
});
afterAll(async () => {
  direct.close();
  await shim.stop();
});

describe('a shim that is killed at each crash point recovers', () => {
  for (const scenario of scenarios(process.env['CRASH_SCENARIOS'], process.env['CRASH_TITLE'])) {
    test(scenario.name, async () => {
      const report = await new Campaign(shim, direct, scenario, pairs).run();
      reports.push(report);
      writeFileSync(out, JSON.stringify(reports));
      expect(report.failures).toEqual([]);
    });
  }
});
