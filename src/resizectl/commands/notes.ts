import { exactSize, parseMilli, parseQuantity } from '../../core/quantities/index.ts';
import type { WirePod, WireResize } from '../../api/wire/index.ts';
import { printable } from '../output/index.ts';
import type { Amounts, RequestedValues } from './changes.ts';

/** What a person has to know about a resize that was applied or is possible. */

/** Returns a note for each limit that the kernel has rounded, with both figures. */
export function roundingNotes(
  { resources, containers }: RequestedValues,
  { after }: Pick<WireResize, 'after'>,
): string[] {
  if (after === undefined) return [];
  const named = new Map(after.containers.map(({ name, values }) => [name, values.limits]));
  return [
    ...noteRounded('pod', resources?.limits, after.pod.limits),
    ...Object.entries(containers).flatMap(([name, { limits }]) =>
      noteRounded(`container ${name}`, limits, named.get(name)),
    ),
  ];
}

const SMALLEST_MILLI_CPU = 10;

function noteRounded(what: string, asked: Amounts = {}, found: Amounts = {}): string[] {
  const notes: string[] = [];
  const [askedCpu, cpu] = [milli(asked.cpu), milli(found.cpu)];
  if (askedCpu !== undefined && cpu !== undefined && askedCpu !== cpu) {
    const why = cpu === SMALLEST_MILLI_CPU ? ': the smallest CPU limit is 10m (1 ms of each 100 ms)' : '';
    notes.push(`note: ${what}.cpu: ${asked.cpu} becomes ${found.cpu}${why}`);
  }
  const [askedMemory, memory] = [size(asked.memory), size(found.memory)];
  if (askedMemory !== undefined && memory !== undefined && askedMemory !== memory)
    notes.push(`note: ${what}.memory: ${asked.memory} becomes ${exactSize(memory)}: the kernel counts whole pages`);
  return notes.map(printable);
}

const milli = (text: string | undefined): number | undefined => parseMilli(text ?? '');
const size = (text: string | undefined): number | undefined => parseQuantity(text ?? '');

/** kubelet has the pod: its spec, state or labels say so. */
const ofKubelet: ReadonlySet<string> = new Set(['spec', 'kubelet-state', 'kubelet-labels']);

/**
 * Returns what kubelet does about a resize that it does not know of, and the command that makes it last. Empty for a pod that kubelet
 * does not manage.
 */
export function kubeletNotes(
  { identity, declared }: Pick<WirePod, 'identity' | 'declared'>,
  values: RequestedValues,
): string[] {
  if (!ofKubelet.has(declared?.source ?? '')) return [];
  const { namespace, name } = identity;
  const lasting = lastingContainers(values);
  const notes = [
    `note: kubelet manages pod ${namespace}/${name} and does not know of this resize. A container gets its old values back when it restarts, and the pod when kubelet resizes it next.`,
  ];
  if (isStatic(identity)) notes.push('To make it last, change the manifest of this static pod on its node.');
  else if (lasting.length > 0) {
    const patch = JSON.stringify({ spec: byList(lasting, declared) });
    notes.push(
      `To make it last, tell the API server:\n  kubectl patch pod ${quoted(name)} -n ${quoted(namespace)} --subresource resize --patch ${quoted(patch)}`,
    );
  }
  if (hasOthers(values, lasting))
    notes.push(
      "The subresource resize has no value for a removed limit, the pod's own values and volumes; docs/volumes.md has the annotation for volumes.",
    );
  return notes.map((note) => note.split('\n').map(printable).join('\n'));
}

/** The uid of a static pod is a hash, that of any other pod a UUID (kubelet pkg/kubelet/config/common.go, applyDefaults). */
const isStatic = ({ uid }: WirePod['identity']): boolean => /^[0-9a-f]{32}$/.test(uid);

/** Returns the lists of the spec that have these containers: sidecars and init containers are in one of their own. */
function byList(
  lasting: readonly LastingContainer[],
  declared: WirePod['declared'],
): { readonly containers?: LastingContainer[]; readonly initContainers?: LastingContainer[] } {
  const isInit = ({ name }: LastingContainer): boolean =>
    declared?.containers.some((one) => one.name === name && (one.kind === 'sidecar' || one.kind === 'init')) === true;
  const initContainers = lasting.filter(isInit);
  const containers = lasting.filter((one) => !isInit(one));
  return { ...(containers.length > 0 && { containers }), ...(initContainers.length > 0 && { initContainers }) };
}

interface LastingContainer {
  readonly name: string;
  readonly resources: { readonly limits?: Amounts; readonly requests?: Amounts };
}

/** What the resize subresource can set: limits and requests of containers, but not that a limit is removed. */
function lastingContainers({ containers }: RequestedValues): LastingContainer[] {
  return Object.entries(containers).flatMap(([name, { limits, requests }]) => {
    const kept = withoutRemoved(limits);
    if (kept === undefined && requests === undefined) return [];
    return [{ name, resources: { ...(kept && { limits: kept }), ...(requests && { requests }) } }];
  });
}

function withoutRemoved(limits: Amounts = {}): Amounts | undefined {
  const left = Object.entries(limits).filter(([, amount]) => amount !== 'max');
  return left.length === 0 ? undefined : Object.fromEntries(left);
}

const hasOthers = (
  { resources, containers, volumes }: RequestedValues,
  lasting: readonly LastingContainer[],
): boolean =>
  resources !== undefined ||
  Object.keys(volumes).length > 0 ||
  lasting.length < Object.keys(containers).length ||
  Object.values(containers).some(({ limits = {} }) => Object.values(limits).includes('max'));

/** Quotes an argument for a shell, if it needs that. */
const quoted = (text: string): string => (/^[\w.@%+=:,/-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
