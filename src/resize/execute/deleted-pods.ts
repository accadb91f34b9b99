import { messageOf } from '../../core/errors/index.ts';
import type { MemoryVolumes } from '../../tmpfs/index.ts';
import type { Log } from '../../observe/index.ts';
import type { Registry } from '../../sandbox/index.ts';
import type { PodJournal } from '../journal/index.ts';

export interface DeletedPodsParts {
  readonly registry: Registry;
  readonly journal: PodJournal;
  readonly volumes: MemoryVolumes;
  readonly log: Log;
}

/**
 * Removes journal entries of pods that were deleted while the shim was away: the runtime has no sandbox of them, and kubelet no
 * folder. Both are required, since either may appear later than the other, for example after a reboot. The registry has just been
 * compared with the backend. Never rejects: entries that cannot be removed are tried again the next time.
 */
export async function forgetDeleted({ journal, registry, volumes, log }: DeletedPodsParts): Promise<void> {
  const uids = new Set(registry.pods.map(({ metadata }) => metadata.uid));
  for (const { podUid, sandboxId } of journal.identities()) {
    try {
      if (uids.has(podUid) || volumes.hasPodFolder(podUid)) continue;
      if (registry.pods.some((pod) => pod.sandboxId === sandboxId)) continue;
      await journal.forget({ podUid, sandboxId });
      log.info({ uid: podUid }, 'journal entry of a deleted pod removed');
    } catch (error) {
      log.warn({ uid: podUid, error: messageOf(error) }, 'journal entry of a deleted pod not removed');
    }
  }
}
