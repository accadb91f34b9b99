import { join } from 'node:path';
import type { Progress } from '../../tools/download/progress.ts';
import type { OciImage } from '../conformance/images/oci.ts';
import { ImageBuilder } from '../conformance/images/oci.ts';
import type { TarEntry } from '../support/node/index.ts';
import { busyboxLayer } from '../support/node/index.ts';
import { builtVersions, containerdPath, obtainBuilt } from '../support/node/parts/go-module.ts';

/** The releases of containerd whose tests run, each against its own tests. */
export const releases = ['2.3', '2.4'] as const;
export type Release = (typeof releases)[number];

export const suiteName = 'cri-integration.test';

/** Programs that fail on demand: a shim of containerd, a network plugin and an OCI runtime. */
const failpoints = ['containerd-shim-runc-fp-v1', 'cni-bridge-fp', 'runc-fp', 'loopback-v2'];

/**
 * containerd's own tests of its CRI server, and the programs that make pods fail. Built from its Go module the first
 * time. Throws GoMissing without a Go toolchain.
 * @returns the folder with the programs
 */
export async function obtainSuite(release: Release, progress: Progress): Promise<string> {
  const version = builtVersions[release];
  const module = {
    path: containerdPath,
    version: `v${version}`,
    linking: '',
    programs: Object.fromEntries(failpoints.map((name) => [name, `./integration/failpoint/cmd/${name}`])),
    testPrograms: { [suiteName]: './integration' },
  };
  const what = `the CRI tests of containerd ${version}`;
  const part = await obtainBuilt(
    { name: `cri-integration-${release}`, modules: [module], what, time: 'one to five minutes' },
    progress,
  );
  return join(part.folder, 'bin');
}

/** The names of images that containerd's tests read from a file, as in integration/images/image_list.go. */
export const pause = 'registry.k8s.io/pause:3.10.2';
const busybox = 'ghcr.io/containerd/busybox:1.36';

/** Images for containerd's tests, by `repository:tag`. */
export function suiteImages(program: Uint8Array, applets: readonly string[]): Map<string, OciImage> {
  const base = [...busyboxLayer(program, applets), ...users];
  const shell: OciImage = { layers: [base, [file('etc/name', 'busybox\n')]], config: { command: ['/bin/sh'] } };
  // Several layers, because tests compare the unpacked content of each layer.
  const layered = (name: string): OciImage => ({
    layers: [base, [file('etc/name', `${name}\n`)], [file('etc/os-release', 'NAME="Alpine Linux"\n')]],
    config: { command: ['/bin/sh'] },
  });
  return new Map<string, OciImage>([
    ['containerd/busybox:1.36', shell],
    ['containerd/alpine:3.14.0', layered('alpine')],
    ['containerd/nginx:1.27.0', layered('nginx')],
    ['containerd/volume-copy-up:2.2', volumeCopyUp(base)],
    ['containerd/volume-ownership:2.1', volumeOwnership(base)],
    ['e2e-test-images/resource-consumer:1.10', layered('resource-consumer')],
    ['pause:3.10.2', { layers: [base], config: { entrypoint: ['/bin/sleep', 'infinity'] } }],
  ]);
}

/** Returns the file for `--image-list`. Only the image with a digest in its name differs from the list of the tests. */
export function imageList(images: ReadonlyMap<string, OciImage>): string {
  const image = images.get('containerd/busybox:1.36');
  if (image === undefined) throw new Error(`there is no image ${busybox}`);
  const { digest } = new ImageBuilder().build(image).manifest;
  return `BusyBoxByDigest = "${busybox.slice(0, busybox.lastIndexOf(':'))}@${digest}"\n`;
}

/** The users and groups of Alpine that tests name. */
const users: readonly TarEntry[] = [
  file('etc/passwd', 'root:x:0:0:root:/root:/bin/sh\ndaemon:x:1:1:daemon:/usr/sbin:/bin/false\n'),
  file('etc/group', 'root:x:0:\ndaemon:x:1:\nwheel:x:10:root\n'),
];

function file(path: string, content: string): TarEntry {
  return { kind: 'file', path, mode: 0o644, content: Buffer.from(content) };
}

const folder = (path: string): TarEntry => ({ kind: 'folder', path, mode: 0o755 });

/** Volumes with files, one with a name that looks like a drive of Windows. */
function volumeCopyUp(base: readonly TarEntry[]): OciImage {
  const files: readonly TarEntry[] = [
    folder('test_dir'),
    file('test_dir/test_file', 'test_content\n'),
    folder('C:'),
    folder('C:/weird_test_dir'),
    file('C:/weird_test_dir/weird_test_file', 'test_content\n'),
    folder(':colon_prefixed'),
    file(':colon_prefixed/colon_prefixed_file', 'test_content\n'),
  ];
  const volumes = ['/test_dir', 'C:/weird_test_dir', '/:colon_prefixed'];
  return { layers: [base, files], config: { command: ['/bin/sh'], volumes } };
}

/** A volume that belongs to nobody. */
function volumeOwnership(base: readonly TarEntry[]): OciImage {
  const owned: TarEntry = { kind: 'folder', path: 'test_dir', mode: 0o755, owner: 65534 };
  return { layers: [base, [owned]], config: { command: ['/bin/sh'], volumes: ['/test_dir'] } };
}
