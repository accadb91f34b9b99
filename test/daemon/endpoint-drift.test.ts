import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { noLog } from '../../src/core/observe/interfaces.ts';
import { EndpointDrift } from '../../src/daemon/endpoint-drift.ts';
import { FakeClock } from '../support/fake-clock.ts';
import { LONG_WAIT } from '../support/long-wait.ts';

let stateFolder: string;
let clock: FakeClock;
let looks: number;
let drift: EndpointDrift;
beforeEach(() => {
  stateFolder = mkdtempSync(join(tmpdir(), 'endpoint-drift-'));
  clock = new FakeClock();
  looks = 0;
  const peers = (): ReadonlySet<number> => {
    looks += 1;
    return new Set();
  };
  const parts = {
    cri: { path: '/run/none.sock', peers },
    bypass: { times: { start: undefined, end: undefined } },
    resizing: { endpointChanged: () => undefined },
    log: noLog,
  };
  drift = new EndpointDrift({ stateFolder }, parts, clock);
});
afterEach(() => {
  drift.close();
  rmSync(stateFolder, { recursive: true });
});

test("checks kubelet's endpoint for the first time 500 ms after the start", async () => {
  drift.begin();
  expect(clock.next).toBe(500);
  clock.pass(499);
  expect([drift.state, drift.check()]).toEqual(['unknown', undefined]);
  clock.pass(1);
  // The next check is scheduled.
  await expect.poll(() => clock.next, LONG_WAIT).toBeDefined();
});

test("does not check kubelet's endpoint after the end", () => {
  drift.begin();
  drift.close();
  expect([clock.next, looks]).toEqual([undefined, 0]);
});
