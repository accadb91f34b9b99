/** A failure of the node itself, not of the command in it. The message has the remedy. */
export class NodeError extends Error {
  override readonly name = 'NodeError';
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

export function errnoOf(error: unknown): string | undefined {
  return error instanceof Error && 'code' in error && typeof error.code === 'string' ? error.code : undefined;
}
