import type { CgroupTree } from '../../cgroups/index.ts';
import { messageOf, type ReadinessCheck, type ReadinessReport } from '../../core/index.ts';
import { ANSWER_MS, type Backend } from '../../runtime/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { PodJournal } from '../journal/pod-journal.ts';
import type { Node } from '../node.ts';

/** Returns whether resizes are possible now, with each check and its reason. Never rejects. */
export async function readinessOf(node: Node): Promise<ReadinessReport> {
  const checks = [
    await backendCheck(node.backend),
    cgroupsCheck(node.tree),
    await journalCheck(node.journal),
    await volumesCheck(node.volumes),
    ...(await recordsChecks(node.journal)),
  ];
  return { ready: checks.every(({ ready, isOptional }) => ready || isOptional === true), checks };
}

async function backendCheck(backend: Backend): Promise<ReadinessCheck> {
  const name = 'backend';
  if (!backend.isConnected) return { name, ready: false, says: 'not connected: resizes fail until it reconnects' };
  if (await backend.responds()) return { name, ready: true, says: 'connected' };
  return { name, ready: false, says: `does not answer within ${ANSWER_MS} ms: resizes fail until it does` };
}

function cgroupsCheck(tree: CgroupTree): ReadinessCheck {
  const name = 'cgroups';
  const version = tree.version();
  if (version === 2) return { name, ready: true, says: 'version 2' };
  const found = version === undefined ? 'nothing' : 'version 1, or the hybrid layout,';
  return { name, ready: false, says: `resizes need cgroup v2: found ${found} at ${tree.root}` };
}

async function journalCheck(journal: PodJournal): Promise<ReadinessCheck> {
  const readiness = await journal.readiness();
  if (readiness.ready) return { name: 'journal', ready: true, says: 'writable' };
  return { name: 'journal', ready: false, says: `resizes are rejected: ${readiness.error.message}` };
}

/** Returns one check if some records must not be changed. Optional, because the other pods can be resized. */
async function recordsChecks(journal: PodJournal): Promise<readonly ReadinessCheck[]> {
  const { newer, unread } = await journal.withheld();
  const reasons = [
    ...(newer > 0 ? [`${newer} of a newer version of the shim: install it again`] : []),
    ...(unread > 0 ? [`${unread} that the disk does not return: check the disk`] : []),
  ];
  if (reasons.length === 0) return [];
  const says = `resizes of their pods are rejected: ${reasons.join('; ')}`;
  return [{ name: 'records', ready: false, says, isOptional: true }];
}

/** Returns the check of the remount method, which is determined once the node has a memory-backed volume. */
async function volumesCheck(volumes: MemoryVolumes): Promise<ReadinessCheck> {
  const name = 'volumes';
  const { unreachable } = volumes;
  if (unreachable !== undefined) return { name, ready: false, says: `cannot be read: ${unreachable}` };
  if (!volumes.isPrepared) return { name, ready: true, says: 'no memory-backed volume seen yet' };
  try {
    const method = await volumes.method();
    const says = method.kind === 'syscalls' ? 'remounted by system calls' : `remounted by mount(8): ${method.because}`;
    return { name, ready: true, says };
  } catch (error) {
    return { name, ready: false, says: `cannot be remounted: ${messageOf(error)}` };
  }
}
