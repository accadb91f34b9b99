import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { packageRoot } from '../../tools/download/places.ts';
import type { Progress } from '../../tools/download/progress.ts';
import { ownPauseImage, webServer } from '../conformance/images/images.ts';
import type { OciImage } from '../conformance/images/oci.ts';
import { setuidProbe } from '../conformance/images/setuid-probe.ts';
import type { KubernetesRelease } from '../real-kubelet/programs.ts';
import { kubeletVersion, kubernetesModule } from '../real-kubelet/programs.ts';
import type { TestCertificate } from '../support/kubernetes/fake-api-server.ts';
import { makeCertificate } from '../support/kubernetes/fake-api-server.ts';
import type { TarEntry } from '../support/node/index.ts';
import { busyboxLayer } from '../support/node/index.ts';
import type { GoModule } from '../support/node/parts/go-module.ts';
import { obtainBuilt } from '../support/node/parts/go-module.ts';

/** The release whose tests run. Each release of Kubernetes has its own tests, for its own kubelet. */
export const release: KubernetesRelease = '1.37';

/** The version that Kubernetes requires: the command line and the suite must be of one version. */
const ginkgo: GoModule = {
  path: 'github.com/onsi/ginkgo/v2',
  version: 'v2.32.0',
  linking: '',
  programs: { ginkgo: './ginkgo' },
};

/**
 * Returns the folder with the specs (e2e.test), the program of their images (agnhost), the program that runs specs in
 * parallel (ginkgo), and the parts of a cluster that are needed in addition to API server and kubelet. Built from Go
 * modules the first time. Throws GoMissing without a Go toolchain.
 */
export async function obtainE2e(progress: Progress): Promise<string> {
  const kubernetes = kubernetesModule(release);
  const specs: GoModule = {
    ...kubernetes,
    programs: {
      agnhost: './test/images/agnhost',
      'kube-scheduler': './cmd/kube-scheduler',
      'kube-controller-manager': './cmd/kube-controller-manager',
    },
    ownTestPrograms: { 'e2e.test': await readFile(join(packageRoot(), 'test/k8s-e2e/suite/e2e_test.go'), 'utf8') },
  };
  const what = `the node tests of Kubernetes ${kubeletVersion(release)}`;
  const part = await obtainBuilt(
    { name: 'kubernetes-e2e', modules: [specs, ginkgo], what, time: 'five to twenty minutes' },
    progress,
  );
  return join(part.folder, 'bin');
}

export interface ImageParts {
  readonly busybox: Uint8Array;
  readonly applets: readonly string[];
  /** Kubernetes' program for test images, built from its module. */
  readonly agnhost: Uint8Array;
}

/**
 * Returns the images that the specs name, by repository and tag. Unknown images are omitted, so that the specs that
 * need them fail on both sides.
 * @param names as in the specs: `registry.k8s.io/e2e-test-images/busybox:1.37.0-1`
 */
export function e2eImages(names: readonly string[], parts: ImageParts): Map<string, OciImage> {
  const known = contents(parts);
  const images = new Map<string, OciImage>();
  for (const name of [...names, ownPauseImage]) {
    const path = name.slice(name.indexOf('/') + 1);
    const repository = path.slice(0, path.lastIndexOf(':'));
    const image = known.get(repository.slice(repository.lastIndexOf('/') + 1));
    if (image !== undefined) images.set(path, image);
  }
  return images;
}

/** The images by the last part of their names. */
function contents({ busybox, applets, agnhost }: ImageParts): Map<string, OciImage> {
  const base: readonly TarEntry[] = busyboxLayer(busybox, applets);
  const env = ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'];
  const pause: OciImage = { layers: [base], config: { entrypoint: ['/bin/tail', '-f', '/dev/null'] } };
  const probe: TarEntry = { kind: 'file', path: 'nnp', mode: 0o4755, content: setuidProbe() };
  return new Map<string, OciImage>([
    [
      'agnhost',
      {
        layers: [base, agnhostLayer(agnhost, makeCertificate('localhost'))],
        config: { entrypoint: ['/agnhost'], command: ['pause'], env },
      },
    ],
    ['busybox', { layers: [base], config: { command: ['sh'], env } }],
    ['nginx', webServer(base, 'nginx', 80)],
    ['nonroot', { layers: [base], config: { user: '1234', command: ['/bin/sleep', 'infinity'], env } }],
    ['nonewprivs', { layers: [base, [probe]], config: { entrypoint: ['/nnp'], env } }],
    ['pause', pause],
    ['conformance-pause', pause],
  ]);
}

/** Specs fetch addresses with curl, whose last argument is the address. */
const curl = '#!/bin/sh\nfor address; do :; done\nexec wget -q -O - "$address"\n';

/** Some specs start bash, with commands that any shell supports. */
const bash = '#!/bin/sh\nexec /bin/sh "$@"\n';

/**
 * The parts of agnhost's own image beyond its base: a second name, curl, bash, a folder for uploads, a user with a
 * group, and the certificate with which it serves HTTPS.
 */
function agnhostLayer(program: Uint8Array, { certificate, key }: TestCertificate): TarEntry[] {
  const text = (path: string, content: string): TarEntry => ({
    kind: 'file',
    path,
    mode: 0o644,
    content: Buffer.from(content),
  });
  const user = 'user-defined-in-image';
  return [
    { kind: 'file', path: 'agnhost', mode: 0o755, content: program },
    { kind: 'link', path: 'agnhost-2', target: 'agnhost' },
    { kind: 'file', path: 'bin/curl', mode: 0o755, content: Buffer.from(curl) },
    { kind: 'file', path: 'bin/bash', mode: 0o755, content: Buffer.from(bash) },
    { kind: 'folder', path: 'uploads', mode: 0o755 },
    text('etc/passwd', `root:x:0:0:root:/root:/bin/sh\n${user}:x:1000:1000::/home:/bin/sh\n`),
    text('localhost.crt', certificate),
    text('localhost.key', key),
    text('etc/group', `root:x:0:\n${user}:x:1000:\ngroup-defined-in-image:x:50000:${user}\n`),
  ];
}
