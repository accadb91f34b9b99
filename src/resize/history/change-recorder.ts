import type { Bytes } from '../../core/quantities/index.ts';
import type { VolumePolicy } from '../../tmpfs/index.ts';
import {
  type ContainerName,
  type KnownValues,
  type Step,
  type ValueChange,
  joinedChanges,
  memoryRequestChanges,
  requestedChanges,
  stepChanges,
} from '../model/index.ts';

/** Characters of one value: unified keys of the CRI may have any content. */
const VALUE_LENGTH = 128;

/** Collects what one request changes: what it asks for, and then the steps of its transactions. */
export class ChangeRecorder {
  readonly #nameOf: ContainerName;
  readonly #max: number;
  /** Called when the request fails, and something of it is left to roll back. */
  readonly leftUnfinished: () => void;
  readonly #onChange: ((changes: readonly ValueChange[]) => void) | undefined;
  #requested: readonly ValueChange[] = [];
  #memoryRequests: readonly ValueChange[] = [];
  #steps: readonly ValueChange[] | undefined;

  /** @param max changes to store; later ones are dropped */
  constructor(
    nameOf: ContainerName,
    max: number,
    onChange?: (changes: readonly ValueChange[]) => void,
    leftUnfinished: () => void = () => undefined,
  ) {
    this.#nameOf = nameOf;
    this.#max = max;
    this.#onChange = onChange;
    this.leftUnfinished = leftUnfinished;
  }

  /** What the steps change; what is asked for, as long as no transaction has begun. With the memory requests, which have no step. */
  get changes(): readonly ValueChange[] {
    return this.#bounded([...(this.#steps ?? this.#requested), ...this.#memoryRequests]);
  }

  asks(desired: KnownValues<VolumePolicy>, now: KnownValues<Bytes>): void {
    this.#requested = this.#bounded(requestedChanges(desired, now, this.#nameOf));
    this.#memoryRequests = this.#bounded(memoryRequestChanges(desired, now, this.#nameOf));
    this.#onChange?.(this.changes);
  }

  /** A transaction begins. A request may have several. */
  begins(steps: readonly Step[]): void {
    this.#steps = this.#bounded(joinedChanges(this.#steps ?? [], stepChanges(steps, this.#nameOf)));
    this.#onChange?.(this.changes);
  }

  #bounded(changes: readonly ValueChange[]): readonly ValueChange[] {
    return boundedChanges(changes, this.#max);
  }
}

/** Returns the first `max` changes, with names and values cut to the length that the history has room for. */
export const boundedChanges = (changes: readonly ValueChange[], max: number): readonly ValueChange[] =>
  changes.slice(0, max).map(({ value, from, to }) => ({
    value: value.slice(0, VALUE_LENGTH),
    from: from.slice(0, VALUE_LENGTH),
    to: to.slice(0, VALUE_LENGTH),
  }));
