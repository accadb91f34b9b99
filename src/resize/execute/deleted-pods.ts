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
 * Forgets what the journal has of pods that have been deleted while nobody watched: the runtime has no sandbox of them, and
 * kubelet no folder. Either may come later than the other, after a reboot say, so one alone says nothing. The registry has just been
 * compared with the backend. Never rejects: what could not be removed is tried again the next time.
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
