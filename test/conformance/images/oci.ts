import { createHash } from 'node:crypto';
import type { ImageConfig, TarEntry } from '../../support/node/index.ts';
import { tar } from '../../support/node/parts/tar.ts';

const mediaTypes = {
  manifest: 'application/vnd.oci.image.manifest.v1+json',
  config: 'application/vnd.oci.image.config.v1+json',
  layer: 'application/vnd.oci.image.layer.v1.tar',
} as const;

export interface OciImage {
  /** In order from the lowest to the highest. */
  readonly layers: readonly (readonly TarEntry[])[];
  readonly config: ImageConfig;
}

/** Content that a registry serves under its digest. */
export interface Blob {
  readonly digest: string;
  readonly mediaType: string;
  readonly content: Buffer;
}

export interface BuiltImage {
  readonly manifest: Blob;
  /** The configuration and the layers. */
  readonly blobs: readonly Blob[];
}

export function blobOf(mediaType: string, content: Buffer): Blob {
  return { digest: `sha256:${createHash('sha256').update(content).digest('hex')}`, mediaType, content };
}

/** Turns layers into blobs. A layer that several images share is the same array, and is packed once. */
export class ImageBuilder {
  private readonly packed = new Map<readonly TarEntry[], Blob>();

  build(image: OciImage): BuiltImage {
    const layers = image.layers.map((layer) => this.pack(layer));
    const config = blobOf(mediaTypes.config, json(configFile(image.config, layers)));
    const manifest = json({
      schemaVersion: 2,
      mediaType: mediaTypes.manifest,
      config: descriptor(config),
      layers: layers.map(descriptor),
    });
    return { manifest: blobOf(mediaTypes.manifest, manifest), blobs: [config, ...layers] };
  }

  private pack(layer: readonly TarEntry[]): Blob {
    const known = this.packed.get(layer);
    if (known) return known;
    const blob = blobOf(mediaTypes.layer, tar(layer));
    this.packed.set(layer, blob);
    return blob;
  }
}

function configFile(config: ImageConfig, layers: readonly Blob[]): object {
  return {
    architecture: 'amd64',
    os: 'linux',
    created: '1970-01-01T00:00:00Z',
    config: {
      Env: config.env ?? ['PATH=/bin'],
      ...(config.entrypoint && { Entrypoint: config.entrypoint }),
      ...(config.command && { Cmd: config.command }),
      ...(config.user !== undefined && { User: config.user }),
      ...(config.volumes && { Volumes: Object.fromEntries(config.volumes.map((path) => [path, {}])) }),
    },
    // Layers are not compressed, so the transferred and the unpacked content have the same digest.
    rootfs: { type: 'layers', diff_ids: layers.map((layer) => layer.digest) },
  };
}

function descriptor(blob: Blob): object {
  return { mediaType: blob.mediaType, digest: blob.digest, size: blob.content.length };
}

function json(value: object): Buffer {
  return Buffer.from(JSON.stringify(value));
}
