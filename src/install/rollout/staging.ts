import { chmod, copyFile, mkdir, readdir, readFile, rename, rm, stat, writeFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import { isMap, parseDocument } from 'yaml';
import { OWN_NODE } from '../host/programs.ts';
import { copyProgram } from '../node/program.ts';

export interface StagingPlaces {
  /** The program in the image. */
  readonly from: string;
  /** A folder of the host, mounted at the same path. */
  readonly staging: string;
  /** The folder of this pod in it: {@link stagingOf}. */
  readonly own: string;
  /** Path of the configuration in the container; undefined: the node keeps its own. */
  readonly config: string | undefined;
  readonly nodeName: string;
  /** Folder with the token and the certificate for the shim's kubeconfig; empty: none. */
  readonly credentials: string;
}

/** Names of what a pod of an older version has staged, directly in the folder. */
const OLDER: readonly string[] = ['program', 'program.new', 'config.yaml', 'kubeconfig.new'];
const FOLDER = /^pod-(\d+)$/;

/**
 * Returns the folder of a pod, by the ID of its process, which is one of the host (hostPID): a pod that was deleted by
 * force may end after its successor has staged the program.
 */
export const stagingOf = (staging: string, pid: number): string => join(staging, `pod-${pid}`);

/** Returns the folder of the staged program. @param own the folder of the pod */
export const programIn = (own: string): string => join(own, 'program');
/** Returns the staged kubeconfig, which `resizectl install` copies to the shim's path in the turn of this node. */
export const kubeconfigIn = (own: string): string => join(own, 'kubeconfig.new');
/** Returns the path of the staged configuration. */
export const configIn = (own: string): string => join(own, 'config.yaml');

/**
 * Copies the program to the host atomically, including the image's Node, because the host may have none. Does not
 * change the files of the installed shim or those that another running pod has staged.
 */
export async function stage({ from, staging, own, config, nodeName, credentials }: StagingPlaces): Promise<void> {
  const to = programIn(own);
  const fresh = `${to}.new`;
  await unstage(own);
  await mkdir(own, { recursive: true, mode: 0o755 });
  await removeLeft(staging);
  const program = { kind: 'folder', folder: from, node: process.execPath, arch: process.arch } as const;
  await copyProgram({ program, to: fresh });
  const node = join(fresh, OWN_NODE);
  await mkdir(dirname(node), { recursive: true });
  await copyFile(process.execPath, node);
  await chmod(node, 0o755);
  if (config !== undefined) {
    const text = await readFile(config, 'utf8');
    await writeFile(configIn(own), credentials === '' ? text : withNodeName(text, nodeName));
  }
  if (credentials !== '') await provideKubeconfig(credentials, kubeconfigIn(own));
  await rename(fresh, to);
}

/** Removes the files of pods that have ended without removing them, for example by SIGKILL. */
async function removeLeft(staging: string): Promise<void> {
  for (const name of await readdir(staging)) {
    const [, pid] = FOLDER.exec(name) ?? [];
    const isLeft = pid === undefined ? OLDER.includes(name) : !(await isRunning(Number(pid)));
    if (isLeft) await unstage(join(staging, name));
  }
}

/** Whether a process with this ID runs. If the ID was reused, the folder stays until the new process has ended. */
const isRunning = (pid: number): Promise<boolean> =>
  stat(`/proc/${pid}`).then(
    () => true,
    () => false,
  );

/** Removes a folder or file that a pod has staged. */
export async function unstage(own: string): Promise<void> {
  await rm(own, { recursive: true, force: true });
}

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
