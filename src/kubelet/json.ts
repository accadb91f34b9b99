export type JsonObject = Readonly<Record<string, unknown>>;

/** Returns undefined for anything but a JSON object. */
export const asObject = (value: unknown): JsonObject | undefined =>
  typeof value === 'object' && value !== null && !Array.isArray(value) ? (value as JsonObject) : undefined;
