// FLUX by npm @ai-sdk/black-forest-labs (the vendor has no SDK of its own) against a running sandbox:
//
//     npm install && LONGHAUL_SANDBOX=http://127.0.0.1:7071 npm test

import assert from "node:assert/strict";
import { randomUUID } from "node:crypto";
import { test } from "node:test";

import { createBlackForestLabs } from "@ai-sdk/black-forest-labs";
import { experimental_generateImage as generateImage } from "ai";

const sandbox = process.env.LONGHAUL_SANDBOX?.replace(/\/$/, "");
assert.ok(sandbox, "LONGHAUL_SANDBOX is not set: start a sandbox and name its address");

// This SDK sends its key along to the file host as well; the sandbox refuses a key there, so it is taken off.
function withoutKeyForFiles(url, options) {
  const headers = new Headers(options?.headers);
  if (new URL(url).pathname.startsWith("/_files/")) headers.delete("x-key");
  return fetch(url, { ...options, headers });
}

function draw(prompt, { key = "sandbox-flux", ...more } = {}) {
  const flux = createBlackForestLabs({ apiKey: key, baseURL: `${sandbox}/flux/v1`, fetch: withoutKeyForFiles });
  const providerOptions = { blackForestLabs: { pollIntervalMillis: 100, pollTimeoutMillis: 20000, ...more } };
  return generateImage({ model: flux.image("flux-2-pro"), prompt, size: "512x384", maxRetries: 0, providerOptions });
}

test("start, poll and output", async () => {
  const prompt = `a brass telescope ${randomUUID()}`;
  const { image, providerMetadata } = await draw(prompt, { outputFormat: "png" });
  const bytes = Buffer.from(image.uint8Array);
  assert.equal(bytes.subarray(1, 4).toString(), "PNG");
  assert.deepEqual([bytes.readUInt32BE(16), bytes.readUInt32BE(20)], [512, 384]);
  const [told] = providerMetadata.blackForestLabs.images;
  assert.ok(told.cost > 0 && told.outputMegapixels > 0 && told.end_time > told.start_time);
  const starts = await (await fetch(`${sandbox}/_control/starts?vendor=flux`)).json();
  assert.equal(starts.by_marker[prompt], 1);
});

test("a failure", async () => {
  await assert.rejects(draw("sandbox:fails"), /generation failed/);
});

test("a bad key", async () => {
  await assert.rejects(draw("x", { key: "real" }), (error) => error.statusCode === 403 && /Not authenticated/.test(error.message));
});
