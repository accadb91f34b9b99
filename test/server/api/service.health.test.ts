import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Client, credentials } from '@grpc/grpc-js';
import { parse } from 'protobufjs';
import { afterEach, beforeEach, describe, expect, test } from 'vitest';
import { noCounters } from '../../../src/core/observe/counters.ts';
import { type ReadinessReport, noLog } from '../../../src/core/observe/interfaces.ts';
import { type ResizeApi, openResizeApi } from '../../../src/server/api/resize-api.ts';
import { listen } from '../../../src/server/listener/listener.ts';
import { FakeClock, FakeCore, FakeStore, createResizes } from '../../support/resize/fake-resizes.ts';
import { refusal } from '../../support/resize-api/client.ts';
import type { PodDirectory } from '../../../src/sandbox/report/pod-directory.ts';

// The messages of https://github.com/grpc/grpc/blob/master/doc/health-checking.md.
const { root } = parse(`syntax = "proto3";
message HealthCheckRequest { string service = 1; }
message HealthCheckResponse {
  enum ServingStatus { UNKNOWN = 0; SERVING = 1; NOT_SERVING = 2; SERVICE_UNKNOWN = 3; }
  ServingStatus status = 1;
}`);
const requestType = root.lookupType('HealthCheckRequest');
const responseType = root.lookupType('HealthCheckResponse');
const RESIZES = 'criresize.v1alpha1.ResizeService';

let folder: string;
let api: ResizeApi;
let client: Client;
let report: ReadinessReport;

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'health-'));
  const clock = new FakeClock();
  const pods: PodDirectory = {
    find: () => Promise.reject(new Error('the health check reads no pod')),
    listContainers: () => Promise.resolve(new Map()),
    list: () => Promise.resolve([]),
    describe: () => Promise.reject(new Error('the health check reads no pod')),
    containerName: (_, id) => id,
  };
  const resizes = createResizes({ core: new FakeCore(), clock, store: new FakeStore() });
  const readiness = (): Promise<ReadinessReport> => Promise.resolve(report);
  const parts = { resizes, pods, clock, readiness, peerOf: () => undefined, log: noLog, counters: noCounters };
  const path = join(folder, 'resize.sock');
  api = await openResizeApi({
    path,
    listen: (onConnection) => listen({ path, rights: { mode: 0o600 }, onConnection, log: parts.log }),
    ...parts,
  });
  client = new Client(`unix:${folder}/resize.sock`, credentials.createInsecure());
});
afterEach(async () => {
  client.close();
  await api.close(0);
  rmSync(folder, { recursive: true });
});

const raw = (method: string, bytes: Uint8Array): Promise<Buffer> =>
  new Promise((resolve, reject) => {
    const same = (value: Buffer): Buffer => value;
    client.makeUnaryRequest(`/grpc.health.v1.Health/${method}`, same, same, Buffer.from(bytes), (error, response) =>
      error === null ? resolve(response ?? Buffer.alloc(0)) : reject(error),
    );
  });

async function check(service: string): Promise<string> {
  const response = responseType.decode(await raw('Check', requestType.encode({ service }).finish()));
  return responseType.toObject(response, { enums: String, defaults: true })['status'] as string;
}

describe('the health service', () => {
  test('Check returns SERVING only while resizes are possible, and always for the empty service', async () => {
    report = { ready: true, checks: [{ name: 'journal', ready: true, says: 'writable' }] };
    expect(await check(RESIZES)).toBe('SERVING');
    report = { ready: false, checks: [{ name: 'journal', ready: false, says: 'no space' }] };
    expect(await check(RESIZES)).toBe('NOT_SERVING');
    expect(await check('')).toBe('SERVING');
  });

  test('Check returns NOT_FOUND for an unknown service', async () => {
    expect(await refusal(check('other'))).toMatchObject({
      code: 5,
      reason: 'UNKNOWN_SERVICE',
      about: { asked: 'other' },
    });
  });

  test('Check rejects a request that cannot be decoded', async () => {
    const bad = Buffer.from([0x0a, 0x7f, 0x01]);
    expect(await refusal(raw('Check', bad))).toMatchObject({ code: 3, reason: 'INVALID_VALUE' });
  });

  test('Watch is not implemented', async () => {
    await expect(raw('Watch', Buffer.alloc(0))).rejects.toMatchObject({ code: 12 });
  });
});
