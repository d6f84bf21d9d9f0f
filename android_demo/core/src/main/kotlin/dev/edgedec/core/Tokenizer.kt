package dev.edgedec.core

import java.io.File

/**
 * A Hugging Face `tokenizer.json` with byte pair encoding, of bytes (GPT-2, Llama 3, Qwen) or of SentencePiece's kind,
 * and the pieces of its chat template.
 *
 * It gives the ids of the `tokenizers` library. It belongs to one thread.
 *
 * @property vocabSize one more than the largest token id; a model may have more rows
 * @property specialIds tokens that are never part of a text
 * @property chat how a conversation becomes a text; null if the export found no such pieces
 */
class Tokenizer private constructor(private val file: TokenizerFile, val chat: ChatPieces?) {
    val vocabSize: Int get() = file.tokens.size
    val specialIds: Set<Int> = file.added.filter { it.special }.map { it.id }.toSet()
    private val raw = AddedTokens(file.added.filter { !it.normalized })
    private val normalized = AddedTokens(file.added.filter { it.normalized })

    /**
     * The token ids of a text; the names of special tokens in it become those tokens.
     *
     * @param addSpecialTokens adds what the file asks for, as BOS in front; false for a rendered conversation
     * @throws InputException the text has half of a surrogate pair
     */
    fun encode(text: String, addSpecialTokens: Boolean = true): IntArray {
        unpairedAt(text).let { if (it >= 0) throw InputException("the text is not valid Unicode at character $it") }
        val found = ArrayList<Int>(text.length / 3)
        if (addSpecialTokens) found += file.around.first
        for (part in raw.split(text)) {
            if (part.token != null) found += part.token
            else encodePart(text.substring(part.start, part.end), part.start == 0, found)
        }
        if (addSpecialTokens) found += file.around.second
        return found.toIntArray()
    }

    private fun encodePart(text: String, first: Boolean, found: MutableList<Int>) {
        val plain = file.normalization.apply(text)
        for (part in normalized.split(plain)) {
            if (part.token != null) {
                found += part.token
                continue
            }
            val piece = Piece(plain.substring(part.start, part.end), first && part.start == 0)
            val words = file.steps.fold(listOf(piece)) { pieces, step -> pieces.flatMap(step::apply) }
            for (word in words) found += file.model.encode(word.text).asList()
        }
    }

    /** The text of [ids]; special tokens and ids that are not tokens are skipped. */
    fun decode(ids: IntArray): String = buildString {
        val stream = stream()
        for (id in ids) append(stream.push(id))
        append(stream.flush())
    }

    /**
     * A detokeniser for the text after [prompt].
     *
     * After a prompt with any text the first word keeps the space that the beginning of a text would lose.
     */
    fun stream(prompt: IntArray = intArrayOf()): TextStream =
        file.scheme.stream(::written, continued = prompt.any { written(it).isNotEmpty() })

    /** A token as the vocabulary writes it; empty if decoding skips it. */
    private fun written(token: Int): String = if (token in specialIds) "" else file.tokens.getOrNull(token).orEmpty()

    companion object {
        /**
         * Reads a folder with `tokenizer.json` and perhaps `chat_pieces.json`, or the former file itself.
         *
         * @throws BundleException missing, too large, damaged, or with a section that is not known here
         */
        fun load(folder: File): Tokenizer {
            val file = if (folder.isFile) folder else File(folder, TokenizerFile.NAME)
            return Tokenizer(TokenizerFile.read(file), ChatPieces.load(file.absoluteFile.parentFile))
        }
    }
}
