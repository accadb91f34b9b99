import { createHash } from 'node:crypto';
import { readdir, readFile, readlink, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { TarEntry } from './tar.ts';
import { tar } from './tar.ts';

/** The part of an image's configuration that tests use. */
export interface ImageConfig {
  readonly entrypoint?: readonly string[];
  readonly command?: readonly string[];
  readonly env?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
  readonly user?: string;
  readonly workingFolder?: string;
  readonly volumes?: readonly string[];
}

export interface Image {
  /** Names with tag, as in CRI: `localhost/pause:1`. */
  readonly names: readonly string[];
  readonly layer: readonly TarEntry[];
  readonly config: ImageConfig;
}

export const pauseImage = 'localhost/pause:1';
export const busyboxImage = 'localhost/busybox:1';

/** Images in docker-archive format for `ctr images import` and `docker load`. Equal layers are stored once. */
export function dockerArchive(images: readonly Image[]): Buffer {
  const stored = new Map<string, TarEntry>();
  const add = (path: string, content: Uint8Array): string => {
    stored.set(path, { kind: 'file', path, mode: 0o644, content });
    return path;
  };
  const manifest = images.map((image) => {
    const layer = tar(image.layer);
    const layerDigest = sha256(layer);
    const config = Buffer.from(JSON.stringify(configFile(image.config, layerDigest)));
    return {
      Config: add(`${sha256(config)}.json`, config),
      RepoTags: image.names,
      Layers: [add(`${layerDigest}.tar`, layer)],
    };
  });
  add('manifest.json', Buffer.from(JSON.stringify(manifest)));
  return tar([...stored.values()]);
}

function configFile(config: ImageConfig, layerDigest: string): object {
  return {
    architecture: 'amd64',
    os: 'linux',
    created: '1970-01-01T00:00:00Z',
    config: {
      ...(config.entrypoint && { Entrypoint: config.entrypoint }),
      ...(config.command && { Cmd: config.command }),
      ...(config.labels && { Labels: config.labels }),
      ...(config.user !== undefined && { User: config.user }),
      ...(config.workingFolder !== undefined && { WorkingDir: config.workingFolder }),
      Env: config.env ?? ['PATH=/bin'],
    },
    rootfs: { type: 'layers', diff_ids: [`sha256:${layerDigest}`] },
    history: [{ created: '1970-01-01T00:00:00Z', created_by: 'cri-resize-shim test node' }],
  };
}

function sha256(content: Uint8Array): string {
  return createHash('sha256').update(content).digest('hex');
}

/** Returns a folder's content as a layer, in a fixed order, with modes and symbolic links. */
export async function layerOf(folder: string, prefix = ''): Promise<TarEntry[]> {
  const entries: TarEntry[] = [];
  const listed = await readdir(folder, { withFileTypes: true });
  for (const entry of listed.sort((a, b) => (a.name < b.name ? -1 : 1))) {
    const source = join(folder, entry.name);
    const path = prefix + entry.name;
    if (entry.isSymbolicLink()) entries.push({ kind: 'link', path, target: await readlink(source) });
    else {
      const mode = (await stat(source)).mode & 0o7777;
      if (entry.isDirectory()) entries.push({ kind: 'folder', path, mode }, ...(await layerOf(source, `${path}/`)));
      else entries.push({ kind: 'file', path, mode, content: await readFile(source) });
    }
  }
  return entries;
}

/** A small root file system around one static busybox: its applets, users, and folders that programs expect. */
export function busyboxLayer(busybox: Uint8Array, applets: readonly string[]): TarEntry[] {
  const file = (path: string, content: string): TarEntry => ({
    kind: 'file',
    path,
    mode: 0o644,
    content: Buffer.from(content),
  });
  const folder = (path: string, mode = 0o755): TarEntry => ({ kind: 'folder', path, mode });
  return [
    folder('bin'),
    { kind: 'file', path: 'bin/busybox', mode: 0o755, content: busybox },
    ...applets.map((name): TarEntry => ({ kind: 'link', path: `bin/${name}`, target: 'busybox' })),
    folder('etc'),
    file('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n'),
    file('etc/group', 'root:x:0:\nnogroup:x:65534:\n'),
    folder('root', 0o700),
    folder('tmp', 0o1777),
    ...['dev', 'proc', 'sys', 'var'].map((name) => folder(name)),
  ];
}

/** The images in each node at its start. */
export function standardImages(busybox: Uint8Array, applets: readonly string[]): Image[] {
  const layer = busyboxLayer(busybox, applets);
  return [
    { names: [pauseImage], layer, config: { entrypoint: ['/bin/sleep', 'infinity'] } },
    { names: [busyboxImage], layer, config: { command: ['/bin/sh'] } },
  ];
}
