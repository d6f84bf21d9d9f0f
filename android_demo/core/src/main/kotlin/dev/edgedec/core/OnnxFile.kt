package dev.edgedec.core

import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.channels.FileChannel.MapMode.READ_ONLY

/**
 * Facts about an ONNX file, read without a runtime.
 *
 * @property metadata by key, as the exporter wrote it
 * @property weightBytes bytes of all weights as stored
 */
class OnnxFile private constructor(val metadata: Map<String, String>, val weightBytes: Long) {
    companion object {
        /**
         * Walks over a graph, and checks that its weights are in files of its folder, so that nothing else is loaded.
         *
         * @param listed the files that the manifest lists for the model; null if there is no manifest
         * @throws BundleException missing, damaged, too large, or with weights elsewhere or cut short
         */
        fun read(file: File, listed: List<File>? = null): OnnxFile {
            val walk = walk(file)
            for ((location, stored) in walk.stored.groupBy { it.location }) {
                val found = inFolder(file, location)
                if (listed != null && listed.none { it.canonicalFile == found }) {
                    throw BundleException(
                        "$file: its weights are in '${oneLine(location)}', which the manifest does not list" +
                            " among the model's files: export the bundle again",
                    )
                }
                val end = stored.maxOf { it.offset + it.length }
                if (!found.isFile) throw BundleException("$found: the model's weights are missing: export it again")
                if (found.length() < end) {
                    throw BundleException("$found: ${found.length()} bytes, expected $end: cut short, export it again")
                }
            }
            return OnnxFile(walk.metadata, walk.inlineBytes + walk.stored.sumOf { it.length })
        }

        private fun walk(file: File): GraphWalk = try {
            RandomAccessFile(file, "r").use { opened ->
                val size = opened.length()
                // More than a buffer can hold; exported graphs have their weights beside them.
                if (size > Int.MAX_VALUE) throw BundleException("$file: 2 GiB or more: export it again")
                GraphWalk(Protobuf(opened.channel.map(READ_ONLY, 0, size)))
            }
        } catch (_: TooManyFields) {
            throw BundleException("$file: its graph has more than ${Protobuf.MAX_FIELDS} fields: refused")
        } catch (_: DamagedMessage) {
            throw BundleException("$file: not an ONNX model, or damaged: export it again")
        } catch (error: IOException) {
            throw BundleException("$file: cannot be read: ${oneLine(error.message.orEmpty())}", error)
        }

        private fun inFolder(file: File, location: String): File {
            val outside = BundleException(
                "$file: the model's weights lead out of its folder: '${oneLine(location)}': refused",
            )
            if (location.startsWith("/") || location.any { it in ":\\" } || oneLine(location) != location) throw outside
            return try {
                val folder = file.absoluteFile.parentFile.canonicalFile
                File(folder, location).canonicalFile.takeIf { it.startsWith(folder) } ?: throw outside
            } catch (_: IOException) {
                throw outside
            }
        }
    }
}

/** Bytes of weights in a file beside the graph; two tensors may share them. */
private data class Stored(val location: String, val offset: Long, val length: Long)

/** Walks over a graph; no tensor is read. Field numbers are those of onnx.proto3. */
private class GraphWalk(private val fields: Protobuf) {
    val metadata = HashMap<String, String>()
    val stored = HashSet<Stored>()
    var inlineBytes = 0L
        private set

    init {
        message(OnnxMessage.MODEL, fields.whole, 0)
    }

    private fun message(kind: OnnxMessage, span: Span, depth: Int) {
        if (depth > MAX_DEPTH) throw DamagedMessage()
        val children = CHILDREN[kind].orEmpty()
        fields.each(span) { number, value ->
            val child = children[number] ?: return@each
            val inner = value ?: throw DamagedMessage()
            when (child) {
                OnnxMessage.TENSOR -> tensor(inner)
                OnnxMessage.PROPERTY -> entry(inner).let { (key, text) -> metadata[key] = text }
                else -> message(child, inner, depth + 1)
            }
        }
    }

    private fun tensor(span: Span) {
        val entries = HashMap<String, String>()
        fields.each(span) { number, value ->
            if (value == null) return@each
            if (number in TENSOR_DATA) inlineBytes += value.end - value.start
            if (number == EXTERNAL_DATA) entry(value).let { (key, text) -> entries[key] = text }
        }
        if (entries.isEmpty()) return
        val location = entries["location"] ?: throw DamagedMessage()
        val offset = (entries["offset"] ?: "0").toLongOrNull()
        val length = entries["length"]?.toLongOrNull()
        if (offset == null || length == null || offset < 0 || length < 0 || offset > Long.MAX_VALUE - length) {
            throw DamagedMessage()
        }
        stored += Stored(location, offset, length)
    }

    /** A key and its value. */
    private fun entry(span: Span): Pair<String, String> {
        var key = ""
        var text = ""
        fields.each(span) { number, value ->
            if (number == 1) key = fields.text(value)
            if (number == 2) text = fields.text(value)
        }
        return key to text
    }

    private companion object {
        const val MAX_DEPTH = 16
        const val EXTERNAL_DATA = 13
        val TENSOR_DATA = setOf(4, 5, 6, 7, 9, 10, 11)
    }
}

private enum class OnnxMessage { MODEL, TRAINING, GRAPH, FUNCTION, NODE, ATTRIBUTE, SPARSE, TENSOR, PROPERTY }

/** Fields that lead to a tensor; attributes of operators hold some, too. */
private val CHILDREN: Map<OnnxMessage, Map<Int, OnnxMessage>> = mapOf(
    OnnxMessage.MODEL to mapOf(
        7 to OnnxMessage.GRAPH,
        14 to OnnxMessage.PROPERTY,
        20 to OnnxMessage.TRAINING,
        25 to OnnxMessage.FUNCTION,
    ),
    OnnxMessage.TRAINING to mapOf(1 to OnnxMessage.GRAPH, 2 to OnnxMessage.GRAPH),
    OnnxMessage.GRAPH to mapOf(1 to OnnxMessage.NODE, 5 to OnnxMessage.TENSOR, 15 to OnnxMessage.SPARSE),
    OnnxMessage.FUNCTION to mapOf(7 to OnnxMessage.NODE, 11 to OnnxMessage.ATTRIBUTE),
    OnnxMessage.NODE to mapOf(5 to OnnxMessage.ATTRIBUTE),
    OnnxMessage.ATTRIBUTE to mapOf(
        5 to OnnxMessage.TENSOR,
        6 to OnnxMessage.GRAPH,
        10 to OnnxMessage.TENSOR,
        11 to OnnxMessage.GRAPH,
        22 to OnnxMessage.SPARSE,
        23 to OnnxMessage.SPARSE,
    ),
    OnnxMessage.SPARSE to mapOf(1 to OnnxMessage.TENSOR, 2 to OnnxMessage.TENSOR),
)
