import { glob, readFile, stat } from 'node:fs/promises';
import { type Node, UNITS, queryRuntime, queryShim, socketOf } from '../host/index.ts';
import { findKubelet } from '../kubelet/index.ts';
import { type Finding, findingsOf } from './finding.ts';

/** Where kubeadm, packages and distributions set the endpoint of kubelet. */
export const KUBELET_FILES: readonly string[] = [
  '/var/lib/kubelet/*.*',
  '/etc/*/kubelet*',
  '/etc/*/*/kubelet*',
  '/usr/lib/systemd/system/kubelet*',
];

/**
 * Returns the lines of shell that point kubelet back at containerd and stop the shim, with nothing but grep, sed, readlink and systemctl, also
 * those of busybox. README.md and docs/troubleshooting.md have them, too.
 */
export function linesBack({ listen, containerd, kubeletUnit, kubeletFiles }: Node): readonly string[] {
  const unit = kubeletUnit.replace(/\.service$/, '');
  return [
    `files=$(grep -rls ${listen.split('/').at(-1) ?? listen} ${kubeletFiles.join(' ')})`,
    `for file in $files; do sed -i 's|${listen}|${containerd}|' "$(readlink -f "$file")"; done`,
    `systemctl daemon-reload; systemctl reset-failed ${unit}; systemctl restart ${unit}`,
    `systemctl disable --now ${UNITS.join(' ')}`,
  ];
}

/** Checks whether kubelet, running or not, is set to use a socket that nothing serves. */
export async function checkKubeletRuntime(node: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('kubelet runtime');
  const { listen, containerd } = node;
  const file = await fileWith(node);
  if (file === undefined && !(await isRunningThrough(node))) return ok(`kubelet does not use ${listen}`);
  if (await answers(listen)) return ok(`${listen} is served`);
  if (!(await answers(containerd))) return ok('not checked: containerd does not answer either');
  return failed(
    `kubelet uses ${listen} (${file ?? 'its command line'}), and nothing answers there: this node has no container runtime`,
    ['resizectl install, or these lines, which need nothing of the shim:', ...linesBack(node)].join('\n'),
  );
}

/** Whether a runtime answers, or a shim that does not reach one. */
async function answers(socket: string): Promise<boolean> {
  const isRuntime = await queryRuntime(socket).then(
    () => true,
    () => false,
  );
  return (
    isRuntime ||
    queryShim(socket).then(
      (shim) => shim !== undefined,
      () => false,
    )
  );
}

async function isRunningThrough(node: Node): Promise<boolean> {
  const found = await findKubelet(node).catch(() => undefined);
  return found?.kind === 'running' && socketOf(found.kubelet.endpoint) === node.listen;
}

/** Returns the first file that has the socket of the shim. */
async function fileWith({ kubeletFiles, listen }: Node): Promise<string | undefined> {
  for (const pattern of kubeletFiles)
    for await (const path of glob([pattern, `${pattern}/*`])) if (await hasText(path, listen)) return path;
  return undefined;
}

/** A configuration is smaller: anything larger is something else. */
const LONGEST = 1024 * 1024;

async function hasText(path: string, text: string): Promise<boolean> {
  try {
    const { size } = await stat(path);
    return size <= LONGEST && (await readFile(path, 'utf8')).includes(text);
  } catch {
    // A folder, or a file that has gone meanwhile.
    return false;
  }
}
