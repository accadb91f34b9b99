import {
  chmodSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { gzipSync } from 'node:zlib';
import { execa } from 'execa';
import { configurationExample } from '../../src/core/config/documentation.ts';
import { OWN_NODE } from '../../src/install/host/programs.ts';
import type { Facts } from './facts.ts';
import type { NodeBinary } from './node-binary.ts';

/** Debian's names for Node's architectures. */
const architectures: Readonly<Record<string, string>> = { x64: 'amd64', arm64: 'arm64' };

export interface DebParts {
  /** The folder that tree.ts creates. */
  readonly tree: string;
  /** The package contains Node, because Debian has no Node that is new enough. */
  readonly node: NodeBinary;
  readonly sbom: string;
  /** The folder for the package. */
  readonly target: string;
}

const LIB = 'usr/lib/cri-resize-shim';
const NODE = `/${LIB}/${OWN_NODE}`;
/** The Debian packages of the libraries that Node links to (objdump -T). */
const LIBRARIES = 'libc6 (>= 2.28), libgcc-s1, libstdc++6 (>= 8), libatomic1';

/** Builds the .deb. Returns its file. */
export async function makeDeb(facts: Facts, { tree, node, sbom, target }: DebParts): Promise<string> {
  const root = mkdtempSync(join(tmpdir(), 'deb-'));
  try {
    chmodSync(root, 0o755);
    const { write, link } = writing(root);
    cpSync(tree, join(root, LIB), { recursive: true, verbatimSymlinks: true });
    for (const part of ['systemd', 'bin', 'LICENSE', 'dist/resizectl.1'])
      rmSync(join(root, LIB, part), { recursive: true });
    write(NODE, readFileSync(node.program), 0o755);
    for (const program of ['cri-resize-shim', 'resizectl']) startWith(NODE, join(root, LIB, 'dist', `${program}.js`));
    link('usr/bin/resizectl', `../lib/cri-resize-shim/dist/resizectl.js`);
    link('usr/sbin/cri-resize-shim', `../lib/cri-resize-shim/dist/cri-resize-shim.js`);
    for (const unit of readdirSync(join(tree, 'systemd'))) {
      const text = readFileSync(join(tree, 'systemd', unit), 'utf8');
      const installed = text.replaceAll('/usr/local/lib/cri-resize-shim', `/${LIB}`).replaceAll('/usr/bin/node', NODE);
      write(`usr/lib/systemd/system/${unit}`, installed);
    }
    write('usr/share/man/man1/resizectl.1.gz', gzipped(readFileSync(join(tree, 'dist/resizectl.1'))));
    for (const [shell, file] of Object.entries(completions)) write(file, await completion(tree, shell));
    for (const [path, text] of Object.entries(initialFiles())) write(`usr/share/cri-resize-shim${path}`, text);
    write('usr/share/doc/cri-resize-shim/copyright', readFileSync(join(tree, 'LICENSE')));
    write('usr/share/doc/cri-resize-shim/copyright.node.gz', gzipped(readFileSync(node.license)));
    write('usr/share/doc/cri-resize-shim/sbom.cdx.json.gz', gzipped(readFileSync(sbom)));
    for (const script of ['preinst', 'postinst', 'prerm', 'postrm'])
      write(`DEBIAN/${script}`, readFileSync(join(facts.root, 'tools/packaging/debian', script)), 0o755);
    write('DEBIAN/control', control(facts));
    const file = join(target, `${facts.name}_${facts.version}_${architectureOf(facts)}.deb`);
    // The result is as small as with gzip, in a tenth of the time. dpkg supports zstd from 1.21.18 (Debian 12) on.
    await execa('dpkg-deb', ['--root-owner-group', '-Zzstd', '-z3', '--build', root, file]);
    return file;
  } finally {
    rmSync(root, { recursive: true });
  }
}

/** Files that postinst creates from copies in /usr/share/cri-resize-shim if they do not exist. */
const initialFiles = (): Readonly<Record<string, string>> => ({
  '/etc/cri-resize-shim/config.yaml': configurationExample({ isCommentedOut: true }),
  '/etc/default/cri-resize-shim': 'CRI_RESIZE_SHIM_FLAGS="--config /etc/cri-resize-shim/config.yaml"\n',
});

/** Makes a program start with a given Node instead of the one in PATH. */
function startWith(node: string, program: string): void {
  const text = readFileSync(program, 'utf8');
  const [first = ''] = text.split('\n', 1);
  if (!first.startsWith('#!')) throw new Error(`${program} does not start with #!`);
  writeFileSync(program, `#!${node}${text.slice(first.length)}`);
}

const completions = {
  bash: 'usr/share/bash-completion/completions/resizectl',
  zsh: 'usr/share/zsh/vendor-completions/_resizectl',
  fish: 'usr/share/fish/vendor_completions.d/resizectl.fish',
} as const;

async function completion(tree: string, shell: string): Promise<string> {
  const { stdout } = await execa(process.execPath, [join(tree, 'dist/resizectl.js'), 'completion', shell]);
  return `${stdout}\n`;
}

// Without a timestamp, so that the same content results in the same file.
const gzipped = (content: Buffer): Buffer => gzipSync(content, { level: 9 });

function architectureOf({ arch }: Facts): string {
  const known = architectures[arch];
  if (known === undefined) throw new Error(`Debian has no architecture name for ${arch}`);
  return known;
}

function control(facts: Facts): string {
  return `${[
    `Package: ${facts.name}`,
    `Version: ${facts.version}`,
    `Architecture: ${architectureOf(facts)}`,
    'Maintainer: The cri-resize-shim authors <noreply@cri-resize-shim.io>',
    'Section: admin',
    'Priority: optional',
    `Depends: ${LIBRARIES}`,
    'Recommends: containerd',
    `Description: ${facts.description}`,
    ' It orders the limits of pods and containers (cgroup v2), resizes memory-backed volumes with them, and forwards everything else.',
    ' Installing this package does not point kubelet at it.',
  ].join('\n')}\n`;
}

interface Writing {
  readonly write: (path: string, content: string | Buffer, mode?: number) => void;
  readonly link: (path: string, to: string) => void;
}

function writing(root: string): Writing {
  const place = (path: string): string => {
    mkdirSync(dirname(join(root, path)), { recursive: true, mode: 0o755 });
    return join(root, path);
  };
  return {
    write: (path, content, mode = 0o644) => {
      writeFileSync(place(path), content);
      chmodSync(join(root, path), mode);
    },
    link: (path, to) => symlinkSync(to, place(path)),
  };
}
