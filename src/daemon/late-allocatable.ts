import { type Amounts, type NodeAllocatable, noNodeAllocatable } from '../sandbox/index.ts';

/** The node's allocatable, from a source that is known only once the API server is watched. */
export class LateAllocatable implements NodeAllocatable {
  #source: NodeAllocatable = noNodeAllocatable;

  use(source: NodeAllocatable): void {
    this.#source = source;
  }

  amounts(): Amounts | undefined {
    return this.#source.amounts();
  }
}
