package dev.edgedec.core

import java.io.File

/** The manifest's facts about a file. */
internal data class FileFact(val sha256: String, val bytes: Long)

/**
 * The manifest of a bundle, read as untrusted input: types are checked, sizes bounded, and no path leaves the folder.
 *
 * @property files every file of the bundle but the manifest itself, by its path
 */
internal class Manifest private constructor(
    val files: Map<String, FileFact>,
    val target: Role,
    val draft: Role?,
) {
    /** Bytes of all files; the largest number if they are more. */
    val bytes: Long = files.values.fold(0L) { sum, fact ->
        if (fact.bytes > Long.MAX_VALUE - sum) Long.MAX_VALUE else sum + fact.bytes
    }

    companion object {
        const val NAME = "manifest.json"
        const val MAX_BYTES = 1 shl 20
        private const val SCHEMA_VERSION = 2L
        private const val FORMAT = "onnx"

        /**
         * Reads a manifest.
         *
         * @param folder of the bundle, where its files are
         * @param where the manifest is, for messages
         * @throws BundleException not a manifest, of another version, or not as expected
         */
        fun parse(data: ByteArray, folder: File, where: String): Manifest {
            if (data.size > MAX_BYTES) throw BundleException("$where is larger than ${MAX_BYTES shr 20} MiB")
            val raw = jsonObject(data)
                ?: throw BundleException("$where is not a JSON object: export or copy the bundle again")
            val manifest = Fields(raw, where)
            checkVersion(manifest)
            val listed = manifest.fields("files")
            val files = listed.names.associateWith { fileFact(listed.fields(it)) }
            files.keys.forEach { checkInside(it, where) }
            val roles = manifest.fields("roles")
            if (manifest.has("generation")) manifest.fields("generation")
            return Manifest(
                files,
                target = role("target", roles.fields("target"), files.keys, folder),
                draft = if (roles.has("draft")) role("draft", roles.fields("draft"), files.keys, folder) else null,
            )
        }

        private fun checkVersion(manifest: Fields) {
            val version = manifest.size("schema_version")
            val remedy = if (version > SCHEMA_VERSION) "upgrade edgedec" else "export the bundle again"
            if (version != SCHEMA_VERSION) {
                throw BundleException(
                    "${manifest.where} has schema $version, this edgedec reads $SCHEMA_VERSION: $remedy",
                )
            }
        }

        private fun fileFact(facts: Fields): FileFact {
            val digest = facts.text("sha256")
            if (digest.length != 64 || digest.any { it !in "0123456789abcdef" }) {
                throw facts.wrong("sha256", "64 hexadecimal digits")
            }
            return FileFact(digest, facts.size("bytes"))
        }

        /** Refuses what could be another file than the one of this name in the folder, on any system. */
        private fun checkInside(name: String, where: String) {
            val plain = name.split('/').all { it.isNotEmpty() && it != "." && it != ".." }
            if (!plain || name.any { it in "\\:" } || oneLine(name) != name) {
                throw BundleException("$where: '${oneLine(name)}' is not a path inside the bundle")
            }
        }

        private fun role(name: String, fields: Fields, files: Set<String>, folder: File): Role {
            fields.text("architecture")
            fields.text("source")
            if (fields.has("licence")) fields.text("licence")
            fields.fields("dims").let { dims -> dims.names.forEach(dims::size) }
            val tokenizer = fields.fields("tokenizer")
            val file = listed(tokenizer.text("file"), tokenizer, files)
            val variants = fields.fields("variants")
            // Those of other formats are checked as well, as wherever a bundle is opened.
            val models = variants.names.associateWith { model(variants.fields(it), files) }
            if (models.isEmpty()) throw fields.wrong("variants", "one or more")
            val model = models[FORMAT] ?: throw BundleException(
                "the bundle has no $name in the format '$FORMAT', only ${oneLine(models.keys.joinToString())}:" +
                    " export it with --format $FORMAT",
            )
            return Role(
                name,
                model = File(folder, model.first),
                tokenizer = File(folder, file.substringBeforeLast('/', "")),
                tokenizerHash = tokenizer.text("content_sha256"),
                files = model.second.map { File(folder, it) },
            )
        }

        /** The graph of a model in one format, and all its files. */
        private fun model(fields: Fields, files: Set<String>): Pair<String, List<String>> {
            val names = fields.texts("files").map { listed(it, fields, files) }
            val graph = fields.text("file")
            // So that the file that is loaded is one that is hashed.
            if (graph !in names) throw fields.wrong("file", "one of its own files")
            listOf("kv", "weights").forEach(fields::text)
            return graph to names
        }

        private fun listed(name: String, where: Fields, files: Set<String>): String {
            if (name !in files) throw BundleException("${where.where}: '${oneLine(name)}' is not among the files")
            return name
        }
    }
}
