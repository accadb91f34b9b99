/** The process of a client, as far as it is known. A hint for people: a process chooses its own name. */
export interface ClientProcess {
  readonly pid: number;
  /** At most 15 characters; undefined if it cannot be read. */
  readonly name: string | undefined;
}
