import { chmodSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, expect, test } from 'vitest';
import { GrpcWitness } from './grpc.ts';

const { signal } = new AbortController();
let logs: string;
let client: string;
beforeEach(() => {
  logs = mkdtempSync(join(tmpdir(), 'grpc-'));
  client = join(logs, 'client');
  // Fails in one case.
  writeFileSync(client, `#!/bin/sh\necho "$@" >>${logs}/calls\ncase "$*" in *ping_pong*) echo why; exit 1;; esac\n`);
  chmodSync(client, 0o755);
});
afterEach(() => rmSync(logs, { recursive: true }));

const calls = (): string[] => readFileSync(join(logs, 'calls'), 'utf8').trim().split('\n');

test('each gRPC case runs alone, some also run among many clients, and a failed case has its reason', async () => {
  const cases = await new GrpcWitness(client, 3).run({ port: 17, logs, signal });
  expect(calls().length).toBe(cases.size);
  expect(calls().every((call) => call.startsWith('--server_host=127.0.0.1 --server_port=17 --test_case='))).toBe(true);
  expect(cases.get('grpc empty_unary')).toMatchObject({ outcome: 'passed', reason: '' });
  expect(cases.get('grpc ping_pong')).toMatchObject({ outcome: 'failed', reason: 'it exited with 1\nwhy' });
  expect([...cases.keys()].filter((name) => name.includes('at once'))).toEqual([
    'grpc 3 clients at once, 1: empty_unary',
    'grpc 3 clients at once, 2: large_unary',
    'grpc 3 clients at once, 3: client_streaming',
  ]);
});

test('a chosen gRPC case runs again in its form: alone, or among all clients', async () => {
  const witness = new GrpcWitness(client, 3);
  const alone = await witness.run({ port: 17, logs, signal, only: ['grpc rpc_soak, 3 threads'] });
  expect([[...alone.keys()], calls().length]).toEqual([['grpc rpc_soak, 3 threads'], 1]);
  const among = await witness.run({ port: 17, logs, signal, only: ['grpc 3 clients at once, 2: large_unary'] });
  expect([[...among.keys()], calls().length]).toEqual([['grpc 3 clients at once, 2: large_unary'], 4]);
});
