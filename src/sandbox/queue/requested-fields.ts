import { amountField, type PodField, volumeField } from '../history/newest-values.ts';
import type { ValueChange } from '../plan/value-changes.ts';
import type { RequestedPod, RequestedResources } from './request.ts';

/** Returns the fields that a request sets. */
export function fieldsOf({ pod, containers, volumes }: RequestedPod): ReadonlySet<PodField> {
  return new Set([
    ...amountsOf(undefined, pod),
    ...Object.entries(containers).flatMap(([name, resources]) => amountsOf(name, resources)),
    ...Object.keys(volumes).map(volumeField),
  ]);
}

/** Returns a request's changes before the pod is read, so without present values. */
export function askedChanges({ pod, containers, volumes }: RequestedPod): readonly ValueChange[] {
  return [
    ...textsOf('pod', pod),
    ...Object.entries(containers).flatMap(([name, resources]) => textsOf(`container ${name}`, resources)),
    ...Object.entries(volumes).map(([name, to]) => ({ value: `volume ${name}`, from: '', to })),
  ];
}

function textsOf(what: string, { limits, requests }: RequestedResources): ValueChange[] {
  const texts = [
    ['memory', limits.memory],
    ['cpu', limits.cpu],
    ['cpu request', requests.cpu],
    ['memory request', requests.memory],
  ] as const;
  return texts.flatMap(([name, to]) => (isSet(to) ? [{ value: `${what} ${name}`, from: '', to }] : []));
}

/** Returns the request without the fields for which `drops` is true. Undefined if no field remains. */
export function withoutFields(requested: RequestedPod, drops: (field: PodField) => boolean): RequestedPod | undefined {
  const left: RequestedPod = {
    pod: withoutAmounts(undefined, requested.pod, drops),
    containers: Object.fromEntries(
      Object.entries(requested.containers).map(([name, resources]) => [name, withoutAmounts(name, resources, drops)]),
    ),
    volumes: Object.fromEntries(Object.entries(requested.volumes).filter(([name]) => !drops(volumeField(name)))),
  };
  return fieldsOf(left).size === 0 ? undefined : left;
}

/** `''` leaves a value unchanged. */
const isSet = (text: string): boolean => text !== '';

function amountsOf(container: string | undefined, { limits, requests }: RequestedResources): PodField[] {
  return [
    ...(isSet(limits.cpu) ? [amountField(container, 'limits.cpu')] : []),
    ...(isSet(limits.memory) ? [amountField(container, 'limits.memory')] : []),
    ...(isSet(requests.cpu) ? [amountField(container, 'requests.cpu')] : []),
    ...(isSet(requests.memory) ? [amountField(container, 'requests.memory')] : []),
  ];
}

function withoutAmounts(
  container: string | undefined,
  { limits, requests }: RequestedResources,
  drops: (field: PodField) => boolean,
): RequestedResources {
  const left = (text: string, amount: Parameters<typeof amountField>[1]): string =>
    drops(amountField(container, amount)) ? '' : text;
  return {
    limits: { cpu: left(limits.cpu, 'limits.cpu'), memory: left(limits.memory, 'limits.memory') },
    requests: { cpu: left(requests.cpu, 'requests.cpu'), memory: left(requests.memory, 'requests.memory') },
  };
}
