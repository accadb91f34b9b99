import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { afterEach, expect, test, vi } from 'vitest';
import { Kubectl } from '../../../src/resizectl/plugin/kubectl.ts';

const folder = mkdtempSync(join(tmpdir(), 'kubectl-'));

afterEach(() => {
  vi.unstubAllEnvs();
  rmSync(folder, { recursive: true });
});

test('a node that does not answer in time leads to an error of that node', async () => {
  writeFileSync(join(folder, 'kubectl'), '#!/bin/sh\nexec sleep 1000\n');
  chmodSync(join(folder, 'kubectl'), 0o755);
  vi.stubEnv('PATH', `${folder}${delimiter}${process.env['PATH'] ?? ''}`);
  const kubectl = new Kubectl({}, (_what, work) => work, 100);
  const pod = { namespace: 'cri-resize-shim', name: 'installer-n1' };
  expect(await kubectl.exec(pod, 'installer', ['true'])).toEqual({ code: 1, out: '', err: 'no answer within 1 s\n' });
});
