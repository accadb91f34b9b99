import type * as z from 'zod/mini';
import { ApiUnreached } from './errors.ts';

/**
 * Parses the body of a response. Throws ApiUnreached with what it is not, because the messages of the parsers quote the body.
 * @param what the object that was asked for: `a node`
 */
export function parsedResponse<Value>(schema: z.ZodMiniType<Value>, text: string, what: string): Value {
  try {
    return schema.parse(JSON.parse(text));
  } catch {
    throw new ApiUnreached(`the response is not ${what}`);
  }
}
