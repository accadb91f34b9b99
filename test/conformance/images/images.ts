import type { TarEntry } from '../../support/node/index.ts';
import { busyboxLayer } from '../../support/node/index.ts';
import type { OciImage } from './oci.ts';
import { setuidProbe } from './setuid-probe.ts';

/**
 * A separate pause image. The pause program of the node is "sleep", and a spec asserts that no "sleep" is left in the
 * pod.
 */
export const ownPauseImage = 'localhost/conformance-pause:1';

/**
 * The images that critest pulls, by repository and tag, built from one static busybox. The registry name is omitted,
 * because containerd is configured to use ours for all.
 *
 * The image that critest references by digest is missing: nobody can build content for a given digest.
 */
export function critestImages(busybox: Uint8Array, applets: readonly string[]): Map<string, OciImage> {
  const base: readonly TarEntry[] = [...busyboxLayer(busybox, applets), ...missingApplets(applets)];
  const plain = (marker: string): OciImage => ({
    layers: [base, [file(marker, `${marker}\n`)]],
    config: { command: ['/bin/sh'] },
  });
  const withUser = (user: string): OciImage => ({ layers: [base], config: { command: ['/bin/sh'], user } });
  const served = (repository: string, port: number): OciImage => webServer(base, repository, port);

  const e2e = 'e2e-test-images';
  const staging = 'k8s-staging-cri-tools';
  const sameForAllTags = plain('test-image-tags');
  return new Map<string, OciImage>([
    [`${e2e}/busybox:1.29-2`, plain('busybox')],
    [`${e2e}/nginx:1.14-2`, served('nginx', 80)],
    [`${e2e}/httpd:2.4.39-4`, served('httpd', 80)],
    [`${e2e}/nonewprivs:1.3`, noNewPrivileges()],
    [
      ownPauseImage.replace(/^[^/]+\//, ''),
      { layers: [base], config: { entrypoint: ['/bin/tail', '-f', '/dev/null'] } },
    ],
    ['pause:3.9', { layers: [base], config: { entrypoint: ['/bin/sleep', 'infinity'] } }],
    [`${staging}/hostnet-nginx-amd64:latest`, served('nginx', 12003)],
    [`${staging}/test-image-user-uid:latest`, withUser('1002')],
    [`${staging}/test-image-user-username:latest`, withUser('www-data')],
    [`${staging}/test-image-user-uid-group:latest`, withUser('1003:users')],
    [`${staging}/test-image-user-username-group:latest`, withUser('www-data:100')],
    [`${staging}/test-image-predefined-group:latest`, predefinedGroup(base)],
    [`${staging}/test-image-latest:latest`, plain('test-image-latest')],
    [`${staging}/test-image-tag:test`, plain('test-image-tag-test')],
    [`${staging}/test-image-tag:all`, plain('test-image-tag-all')],
    ...['1', '2', '3'].map((number): [string, OciImage] => [
      `${staging}/test-image-${number}:latest`,
      plain(`test-image-${number}`),
    ]),
    ...['1', '2', '3'].map((tag): [string, OciImage] => [`${staging}/test-image-tags:${tag}`, sameForAllTags]),
    // Images of the benchmarks, which have a separate list.
    ...['1.35.0-glibc', '1-uclibc', '1', '1-glibc', '1-musl'].map((tag): [string, OciImage] => [
      `docker/library/busybox:${tag}`,
      plain(`busybox-${tag}`),
    ]),
  ]);
}

function file(path: string, content: string, mode = 0o644): TarEntry {
  return { kind: 'file', path, mode, content: Buffer.from(content) };
}

/** Programs that specs call in a container and that Debian's busybox lacks. */
function missingApplets(applets: readonly string[]): TarEntry[] {
  const scripts: Readonly<Record<string, string>> = {
    pgrep: 'for id in $(pidof "$1"); do echo "$id"; done',
    ipcs: 'cat /proc/sysvipc/shm',
  };
  return Object.entries(scripts)
    .filter(([name]) => !applets.includes(name))
    .map(([name, script]) => file(`bin/${name}`, `#!/bin/sh\n${script}\n`, 0o755));
}

/**
 * busybox's httpd behind a script with the name of the server: specs look for that name among the processes, for
 * "master process" in its command line, and for its pid file.
 */
export function webServer(base: readonly TarEntry[], name: string, port: number): OciImage {
  const script = [
    '#!/bin/sh',
    'mkdir -p /var/run',
    `echo $$ >/var/run/${name}.pid`,
    `echo "${name} serves port ${port}"`,
    `httpd -f -p ${port} -h /www &`,
    'server=$!',
    'trap "kill $server; exit 0" TERM INT QUIT',
    'wait $server',
    '',
  ].join('\n');
  return {
    layers: [
      base,
      [
        file(`bin/${name}`, script, 0o755),
        { kind: 'folder', path: 'www', mode: 0o755 },
        file('www/index.html', '<h1>It works</h1>\n'),
      ],
    ],
    config: { entrypoint: [`/bin/${name}`, 'master process'] },
  };
}

/** A setuid program of root that prints its effective user. */
function noNewPrivileges(): OciImage {
  return {
    layers: [[{ kind: 'file', path: 'probe', mode: 0o4755, content: setuidProbe() }]],
    config: { entrypoint: ['/probe'] },
  };
}

/** A user whose groups are defined only in files of the image. */
function predefinedGroup(base: readonly TarEntry[]): OciImage {
  const passwd = 'root:x:0:0:root:/root:/bin/sh\ndefault-user:x:1000:1000::/root:/bin/sh\n';
  const group = 'root:x:0:\ndefault-user:x:1000:\ngroup-defined-in-image:x:50000:default-user\n';
  return {
    layers: [base, [file('etc/passwd', passwd), file('etc/group', group)]],
    config: { command: ['/bin/sh'], user: '1000' },
  };
}
