import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { GoModule } from '../../test/support/node/parts/go-module.ts';
import { GoMissing, obtainBuilt } from '../../test/support/node/parts/go-module.ts';
import type { Progress } from '../../tools/download/progress.ts';
import { repositoryFile } from '../built-file.ts';

/** The versions that kubelet 1.36 is built with. */
const CRI_API = 'v0.36.3';
const GRPC = 'v1.79.3';

/** The bench's programs in Go. */
export interface GoPrograms {
  /** Makes calls and measures them: bench/go/load.go. */
  readonly load: string;
  /** A CRI proxy that decodes and encodes each message: bench/go/typed-proxy.go. */
  readonly typedProxy: string;
}

export const goClientName = `grpc-go ${GRPC.slice(1)}`;
export const typedProxyName = `grpc-go ${GRPC.slice(1)} and cri-api ${CRI_API.slice(1)}`;

const source = (name: string): string => readFileSync(repositoryFile(join('bench/go', name)), 'utf8');

/** Builds the programs the first time. Without a Go toolchain, reports this and returns undefined. */
export async function obtainGoPrograms(progress: Progress): Promise<GoPrograms | undefined> {
  const module: GoModule = {
    path: 'k8s.io/cri-api',
    version: CRI_API,
    linking: '',
    programs: {},
    ownPrograms: { load: source('load.go'), 'typed-proxy': source('typed-proxy.go') },
    dependencies: { 'google.golang.org/grpc': GRPC },
  };
  const what = "the bench's client and proxy in Go";
  try {
    const built = { name: 'bench-go', modules: [module], what, time: 'less than a minute' };
    const { folder } = await obtainBuilt(built, progress);
    return { load: join(folder, 'bin/load'), typedProxy: join(folder, 'bin/typed-proxy') };
  } catch (error) {
    if (!(error instanceof GoMissing)) throw error;
    progress(`calls are made by the client of bare frames, and no typed proxy is measured: ${error.message}`);
    return undefined;
  }
}
