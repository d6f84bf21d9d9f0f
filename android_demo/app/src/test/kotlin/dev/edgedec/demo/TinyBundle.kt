package dev.edgedec.demo

import java.io.File
import java.security.MessageDigest

/** A bundle that is right in form and small, which nothing could decode with. */
object TinyBundle {
    private const val GRAPH = "target/model.onnx"
    private const val TOKENIZER = "tokenizer/tokenizer.json"

    /** Writes it; [seed] makes another one, [alter] changes its manifest. */
    fun write(folder: File, seed: Int = 0, alter: (String) -> String = { it }): File {
        val files = mapOf(GRAPH to ByteArray(200_000) { (it * 31 + seed).toByte() }, TOKENIZER to "{}".toByteArray())
        for ((name, data) in files) {
            val file = File(folder, name)
            checkNotNull(file.parentFile).mkdirs()
            file.writeBytes(data)
        }
        File(folder, "manifest.json").writeText(alter(manifest(files)))
        return folder
    }

    private fun manifest(files: Map<String, ByteArray>): String {
        val facts = files.map { (name, data) -> """"$name": {"sha256": "${sha256(data)}", "bytes": ${data.size}}""" }
        return """
            {
              "schema_version": 2,
              "created_by": "a test",
              "roles": {
                "target": {
                  "architecture": "llama",
                  "source": "tiny",
                  "dims": {"layers": 1, "vocab_size": 16, "max_context": 64},
                  "tokenizer": {"file": "$TOKENIZER", "content_sha256": "${"0".repeat(64)}"},
                  "variants": {"onnx": {"file": "$GRAPH", "files": ["$GRAPH"], "weights": "int4", "kv": "fp32"}}
                }
              },
              "files": {${facts.joinToString()}}
            }
        """
    }

    private fun sha256(data: ByteArray) =
        MessageDigest.getInstance("SHA-256").digest(data).joinToString("") { "%02x".format(it) }
}
