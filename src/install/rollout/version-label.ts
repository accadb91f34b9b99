import { EVENT_MS } from './posted.ts';
import type { RolloutContext } from './rollout-context.ts';
import { retry } from './turns/index.ts';
import { isForbidden } from '../../kubernetes/client/index.ts';

/** The label of a node with the version of the shim that is installed on it. */
export const VERSION_LABEL = 'cri-resize-shim.io/version';

/** The label's value from the start of a removal until it has succeeded. */
export const REMOVING = 'removing';

/** Returns a version as the value of a label, which may have no plus sign (build metadata) and 63 characters. */
export const labelOf = (version: string): string => version.replaceAll('+', '_').slice(0, 63);

type LabelContext = Pick<RolloutContext, 'readNode' | 'labelVersion' | 'random' | 'say' | 'clock'>;

/** Labels the node with the installed version, or removes the label, unless that takes too long, or a right is missing. */
export async function labelled(context: LabelContext, version: string | undefined, signal: AbortSignal): Promise<void> {
  const soon = AbortSignal.any([signal, AbortSignal.timeout(EVENT_MS)]);
  const value = version === undefined ? undefined : labelOf(version);
  const attempt = async (at: AbortSignal): Promise<void> => {
    const node = await context.readNode(at);
    if (node !== undefined && node.labels[VERSION_LABEL] !== value) await context.labelVersion(value, at);
  };
  const labelling = retry('the version label cannot be set', context, soon, attempt, isForbidden);
  await labelling.catch((error: unknown) => {
    const why = isForbidden(error) ? `: ${error.message}; the installer needs the rights to get and patch nodes` : '';
    context.say(`the version label was not set${why}`);
  });
}
