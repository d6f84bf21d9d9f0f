package dev.edgedec.core

import java.io.File
import java.io.IOException
import java.io.RandomAccessFile
import java.nio.ByteBuffer
import java.nio.channels.FileChannel.MapMode.READ_ONLY

/** An operator of ONNX: its [domain], which is empty for ONNX's own, and its [name]. */
data class Operator(val domain: String, val name: String)

/**
 * Facts about an ONNX file, read without a runtime.
 *
 * @property metadata by key, as the exporter wrote it
 * @property external names of the files that hold weights, each with the least size that it must have
 * @property operators all that the graph uses
 */
class OnnxFile private constructor(
    val file: File,
    val metadata: Map<String, String>,
    val external: Map<String, Long>,
    val operators: Set<Operator>,
) {
    /** What the exporter wrote about the graph. */
    val facts: GraphFacts by lazy { GraphFacts.parse(metadata, file.path) }

    companion object {
        /**
         * Reads the graph of a bundle's model, and checks that its weights are in files of the same folder that the
         * manifest lists, so that nothing is loaded that was not checked.
         *
         * @throws BundleException damaged, too large, or with weights elsewhere
         */
        fun read(role: Role): OnnxFile {
            val listed = role.files.map { it.canonicalFile }.toSet()
            val found = read(role.model)
            for ((location, end) in found.external) {
                val file = found.inFolder(location)
                if (file !in listed) {
                    throw BundleException(
                        "${role.model}: its weights are in '${oneLine(location)}', which the manifest does not list" +
                            " among the model's files: export the bundle again",
                    )
                }
                if (file.length() < end) {
                    throw BundleException("$file: ${file.length()} bytes, expected $end: cut short, export it again")
                }
            }
            return found
        }

        private fun read(file: File): OnnxFile {
            val walk = GraphWalk()
            try {
                RandomAccessFile(file, "r").use { opened ->
                    val size = opened.length()
                    // More than a buffer can hold; exported graphs have their weights beside them.
                    if (size > Int.MAX_VALUE) throw BundleException("$file: 2 GiB or more: export it again")
                    walk.model(opened.channel.map(READ_ONLY, 0, size))
                }
            } catch (_: TooManyFields) {
                throw BundleException("$file: its graph has more than ${Protobuf.MAX_FIELDS} fields: refused")
            } catch (_: DamagedMessage) {
                throw BundleException("$file: not an ONNX model, or damaged: export it again")
            } catch (error: IOException) {
                throw BundleException("$file: cannot be read: ${oneLine(error.message.orEmpty())}", error)
            }
            return OnnxFile(file, walk.metadata, walk.external, walk.operators)
        }
    }

    private fun inFolder(location: String): File {
        val folder = file.parentFile.canonicalFile
        val outside = BundleException(
            "$file: the model's weights lead out of its folder: '${oneLine(location)}': refused",
        )
        if (location.startsWith("/") || location.any { it in ":\\" } || oneLine(location) != location) throw outside
        return try {
            File(folder, location).canonicalFile.takeIf { it.startsWith(folder) } ?: throw outside
        } catch (_: IOException) {
            throw outside
        }
    }
}

/** Facts that the exporter wrote into a graph's metadata. */
data class GraphFacts(
    val name: String,
    val layers: Int,
    val kvHeads: Int,
    val headDim: Int,
    val vocabSize: Int,
    val maxContext: Int,
    val eosIds: Set<Int>,
    val topK: Int,
    val blockSize: Int?,
) {
    internal companion object {
        private const val KEY = "edgedec"
        private const val GRAPH_VERSION = 1

        fun parse(metadata: Map<String, String>, where: String): GraphFacts {
            val text = metadata[KEY]
                ?: throw BundleException("$where: not exported by edgedec: use `edgedec export`")
            val found = jsonObject(text.toByteArray())?.let { Fields(it, "$where: metadata") }
                ?: throw BundleException("$where: its metadata is damaged: export it again")
            val version = found.count("graph_version")
            if (version != GRAPH_VERSION) {
                throw BundleException(
                    "$where: graph version $version, this edgedec reads $GRAPH_VERSION:" +
                        " upgrade edgedec or export it again",
                )
            }
            return GraphFacts(
                name = found.text("name"),
                layers = found.count("layers"),
                kvHeads = found.count("kv_heads"),
                headDim = found.count("head_dim"),
                vocabSize = found.count("vocab_size"),
                maxContext = found.count("max_context"),
                eosIds = found.ids("eos_ids").toSet(),
                topK = found.count("top_k"),
                blockSize = if (found.has("block_size")) found.count("block_size") else null,
            )
        }
    }
}

/** Collects facts while it walks over a graph; no tensor is read. Field numbers are those of onnx.proto3. */
private class GraphWalk {
    val metadata = HashMap<String, String>()
    val external = HashMap<String, Long>()
    val operators = HashSet<Operator>()
    private lateinit var fields: Protobuf

    fun model(content: ByteBuffer) {
        fields = Protobuf(content)
        message(Message.MODEL, fields.whole, 0)
    }

    private fun message(kind: Message, span: Span, depth: Int) {
        if (depth > MAX_DEPTH) throw DamagedMessage()
        val children = CHILDREN[kind].orEmpty()
        var name = ""
        var domain = ""
        fields.each(span) { number, value ->
            if (kind == Message.NODE && number == OP_TYPE) name = fields.text(value)
            if (kind == Message.NODE && number == NODE_DOMAIN) domain = fields.text(value)
            val child = children[number] ?: return@each
            val inner = value ?: throw DamagedMessage()
            when (child) {
                Message.TENSOR -> tensor(inner)
                Message.PROPERTY -> entry(inner).let { (key, text) -> metadata[key] = text }
                else -> message(child, inner, depth + 1)
            }
        }
        if (kind == Message.NODE) operators += Operator(domain, name)
    }

    private fun tensor(span: Span) {
        val entries = HashMap<String, String>()
        fields.each(span) { number, value ->
            if (number == EXTERNAL_DATA && value != null) entry(value).let { (key, text) -> entries[key] = text }
        }
        if (entries.isEmpty()) return
        val location = entries["location"] ?: throw DamagedMessage()
        val offset = (entries["offset"] ?: "0").toLongOrNull()
        val length = entries["length"]?.toLongOrNull()
        if (offset == null || length == null || offset < 0 || length < 0 || offset > Long.MAX_VALUE - length) {
            throw DamagedMessage()
        }
        external[location] = maxOf(external[location] ?: 0, offset + length)
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
        const val OP_TYPE = 4
        const val NODE_DOMAIN = 7
        const val EXTERNAL_DATA = 13
    }
}

private enum class Message { MODEL, TRAINING, GRAPH, FUNCTION, NODE, ATTRIBUTE, SPARSE, TENSOR, PROPERTY }

/** Fields that lead to a tensor or an operator; attributes of operators hold both, too. */
private val CHILDREN: Map<Message, Map<Int, Message>> = mapOf(
    Message.MODEL to
        mapOf(7 to Message.GRAPH, 14 to Message.PROPERTY, 20 to Message.TRAINING, 25 to Message.FUNCTION),
    Message.TRAINING to mapOf(1 to Message.GRAPH, 2 to Message.GRAPH),
    Message.GRAPH to mapOf(1 to Message.NODE, 5 to Message.TENSOR, 15 to Message.SPARSE),
    Message.FUNCTION to mapOf(7 to Message.NODE, 11 to Message.ATTRIBUTE),
    Message.NODE to mapOf(5 to Message.ATTRIBUTE),
    Message.ATTRIBUTE to mapOf(
        5 to Message.TENSOR,
        6 to Message.GRAPH,
        10 to Message.TENSOR,
        11 to Message.GRAPH,
        22 to Message.SPARSE,
        23 to Message.SPARSE,
    ),
    Message.SPARSE to mapOf(1 to Message.TENSOR, 2 to Message.TENSOR),
)
