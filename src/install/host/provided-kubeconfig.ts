import { readFile, rm, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { isMap, parseDocument } from 'yaml';
import type { Change } from './change.ts';
import { readSaved, removing, writing } from './files.ts';

/** The kubeconfig of the shim that the DaemonSet provides. */
export interface ProvidedKubeconfig {
  /** `/var/lib/cri-resize-shim-installer/kubeconfig` */
  readonly path: string;
  /** The new content. Undefined: the file does not change, or is removed if no configuration uses it. */
  readonly text?: string;
  /** Whether the configuration that is to be installed names the file. */
  readonly isUsed: boolean;
}

export const PROVIDED_KUBECONFIG = '/var/lib/cri-resize-shim-installer/kubeconfig';

/** The changes of an installation: before the shim starts with its configuration, and after that. */
export interface KubeconfigChanges {
  readonly before: readonly Change[];
  readonly after: readonly Change[];
}

/**
 * Plans the kubeconfig for an installation. The running shim reads the file for each request, so a new token needs no
 * restart. A file that a given configuration no longer names is removed once the shim runs without it. Changes nothing.
 */
export async function planKubeconfig(
  { path, text, isUsed }: ProvidedKubeconfig,
  isConfigGiven: boolean,
): Promise<KubeconfigChanges> {
  const there = await readSaved(path);
  if (text !== undefined) {
    const isSame = there?.content.toString('utf8') === text;
    return { before: isSame ? [] : [writing(path, text, { mode: 0o600 })], after: [] };
  }
  const isLeft = there !== undefined && isConfigGiven && !isUsed;
  return { before: [], after: isLeft ? [removing(path)] : [] };
}

/** Plans the removal of the kubeconfig: its token is for the shim alone. Changes nothing. */
export const removingKubeconfig = async ({ path }: ProvidedKubeconfig): Promise<readonly Change[]> =>
  (await readSaved(path)) === undefined ? [] : [removing(path)];

/**
 * Writes the kubeconfig of the shim for the host, with the token and the certificate of a mounted secret: the shim is
 * no pod, so it has no token of its own. Only root may read it. Rejects if a file cannot be read or written.
 * @param from folder with `token` and `ca.crt`
 */
export async function provideKubeconfig(from: string, to: string, environment = process.env): Promise<void> {
  const { KUBERNETES_SERVICE_HOST: host = '', KUBERNETES_SERVICE_PORT: port = '443' } = environment;
  if (host === '') throw new Error('KUBERNETES_SERVICE_HOST is not set: the address of the API server is unknown');
  const [token, ca] = [await readFile(join(from, 'token'), 'utf8'), await readFile(join(from, 'ca.crt'))];
  const name = 'cri-resize-shim';
  const config = {
    apiVersion: 'v1',
    kind: 'Config',
    'current-context': name,
    contexts: [{ name, context: { cluster: name, user: name } }],
    clusters: [
      {
        name,
        cluster: {
          server: `https://${host.includes(':') ? `[${host}]` : host}:${port}`,
          'certificate-authority-data': ca.toString('base64'),
        },
      },
    ],
    users: [{ name, user: { token: token.trim() } }],
  };
  await rm(to, { force: true });
  await writeFile(to, `${JSON.stringify(config, undefined, 2)}\n`, { mode: 0o600, flag: 'wx' });
}

/**
 * Adds the node's name to a shim configuration, unless it has one: with credentials the shim requests the pods of its
 * node, whose name may differ from the host name. A text that is not a mapping is returned unchanged; the shim reports
 * it.
 */
export function withNodeName(text: string, nodeName: string): string {
  const document = parseDocument(text);
  if (document.errors.length > 0 || !isMap(document.contents) || document.has('nodeName')) return text;
  document.set('nodeName', nodeName);
  return document.toString();
}
