import { glob, readFile, stat } from 'node:fs/promises';
import { isSameSocket, layerName } from '../../endpoint/index.ts';
import { type Node, UNITS, queryRuntime, queryShim } from '../host/index.ts';
import { findKubelet } from '../kubelet/index.ts';
import { type Finding, findingsOf } from './finding.ts';

/** Where kubeadm, packages and distributions set the endpoint of kubelet. */
export const KUBELET_FILES: readonly string[] = [
  '/var/lib/kubelet/*.*',
  '/var/lib/rancher/*/agent/etc/kubelet*',
  '/etc/*/kubelet*',
  '/etc/*/*/kubelet*',
  '/usr/lib/systemd/system/kubelet*',
];

/**
 * Returns the lines of shell that point kubelet back at containerd and stop the shim, with nothing but grep, sed, readlink and systemctl, also
 * those of busybox. If no file sets the socket of the shim, they leave the shim on: kubelet may still use it. README.md and
 * docs/troubleshooting.md have them, too.
 */
export function linesBack({ listen, containerd, kubeletUnit, kubeletFiles }: Node): readonly string[] {
  const unit = kubeletUnit.replace(/\.service$/, '');
  return [
    `files=$(grep -rls ${listen.split('/').at(-1) ?? listen} ${kubeletFiles.join(' ')})`,
    `for file in $files; do sed -i 's|${listen}|${containerd}|' "$(readlink -f "$file")"; done`,
    `systemctl daemon-reload; systemctl reset-failed ${unit}; systemctl restart ${unit}`,
    `[ -n "$files" ] && systemctl disable --now ${UNITS.join(' ')}`,
  ];
}

/** Checks whether kubelet, running or not, is set to use a socket that nothing serves. */
export async function checkKubeletRuntime(node: Node): Promise<Finding> {
  const { ok, failed } = findingsOf('kubelet runtime');
  const { listen, containerd } = node;
  const place = await placeOfEndpoint(node);
  if (place === undefined) return ok(`kubelet does not use ${listen}`);
  if (await answers(listen)) return ok(`${listen} is served`);
  if (!(await answers(containerd))) return ok('not checked: containerd does not answer either');
  return failed(
    `kubelet uses ${listen} (${place}), and nothing answers there: this node has no container runtime`,
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

/** Returns what sets the socket of the shim: for a kubelet that runs, or the next one; undefined if nothing does. */
async function placeOfEndpoint(node: Node): Promise<string | undefined> {
  const found = await findKubelet(node).catch(() => undefined);
  if (found?.kind !== 'running') return fileWith(node);
  const { endpoint, chain } = found.kubelet;
  return (await isSameSocket(endpoint, node.listen)) ? layerName(chain.winner) : undefined;
}

/** Returns the first file that has the socket of the shim in a line that is no comment. */
async function fileWith({ kubeletFiles, listen }: Node): Promise<string | undefined> {
  for (const pattern of kubeletFiles)
    for await (const path of glob([pattern, `${pattern}/*`])) if (await hasText(path, listen)) return path;
  return undefined;
}

/** A configuration is smaller: anything larger is something else. */
const LONGEST = 1024 * 1024;

async function hasText(path: string, text: string): Promise<boolean> {
  try {
    const found = await stat(path);
    if (!found.isFile() || found.size > LONGEST) return false;
    const lines = (await readFile(path, 'utf8')).split('\n');
    return lines.some((line) => line.includes(text) && !/^\s*#/.test(line));
  } catch {
    // A file that has gone meanwhile.
    return false;
  }
}
