/** A violation that an input caused. The input can be replayed by its target, seed and index. */
export class Finding extends Error {}
