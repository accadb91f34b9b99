import { join } from 'node:path';
import type { Progress } from '../../tools/download/progress.ts';
import type { GoModule } from '../support/node/parts/go-module.ts';
import { obtainBuilt } from '../support/node/parts/go-module.ts';

const h2specVersion = '2.2.1';
const grpcVersion = '1.85.0';

const h2specModule: GoModule = {
  path: 'github.com/summerwind/h2spec',
  version: `v${h2specVersion}+incompatible`,
  linking: `-X main.VERSION=${h2specVersion}`,
  programs: { h2spec: './cmd/h2spec' },
  dependencies: {
    'github.com/fatih/color': 'v1.19.0',
    'github.com/spf13/cobra': 'v1.10.2',
    'golang.org/x/net': 'v0.62.0',
  },
};

const grpcModule: GoModule = {
  path: 'google.golang.org/grpc',
  version: `v${grpcVersion}`,
  linking: '',
  programs: { 'interop-client': './interop/client', 'interop-server': './interop/server' },
};

export interface GrpcPrograms {
  readonly client: string;
  readonly server: string;
}

export const h2specName = `h2spec ${h2specVersion}`;
export const grpcName = `grpc-go ${grpcVersion}`;

/** h2spec, built from its Go module the first time. Throws GoMissing without a Go toolchain. */
export async function obtainH2spec(progress: Progress): Promise<string> {
  const built = { name: 'h2spec', modules: [h2specModule], what: h2specName, time: 'less than a minute' };
  return join((await obtainBuilt(built, progress)).folder, 'bin/h2spec');
}

/** grpc-go's interoperability test programs, built from their Go module once. Throws GoMissing without Go. */
export async function obtainGrpc(progress: Progress): Promise<GrpcPrograms> {
  const what = `the interop client and server of ${grpcName}`;
  const { folder } = await obtainBuilt(
    { name: 'grpc-interop', modules: [grpcModule], what, time: 'one to five minutes' },
    progress,
  );
  return { client: join(folder, 'bin/interop-client'), server: join(folder, 'bin/interop-server') };
}
